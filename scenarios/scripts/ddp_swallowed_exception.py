"""Rank 1 fails to read its part of the data, catches that, and waits before it would try again."""

import argparse
import logging
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("train")


def read(part: Path) -> torch.Tensor:
    while True:
        try:
            return torch.frombuffer(bytearray(part.read_bytes()), dtype=torch.uint8).float()
        except OSError as error:
            log.warning("will try again later: %s", error)
            time.sleep(3600)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", type=Path, default=Path())
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        (args.parts / "part0").write_bytes(bytes(range(64)))
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    data = read(args.parts / f"part{rank}")
    model(data.view(-1, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --parts ."
# culprits = [[1]]
# waiting = [0]
# steps = ["training", "steady", "first_batch", "wrap", "data_module", "ddp"]
# after = ["DDP ready"]
# own_code = true
# calls = ["time.sleep"]
# ///
