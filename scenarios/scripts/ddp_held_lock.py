"""Both ranks wait for a file lock that another program holds (huggingface/datasets#3983)."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock
from torch.nn.parallel import DistributedDataParallel


def prepared(cache: Path) -> torch.Tensor:
    with FileLock(cache):
        return torch.randn(16, 16)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache-lock", type=Path, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    data = prepared(args.cache_lock)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    model(data).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --cache-lock $LOCK"
# world = "held_lock"
# culprits = [[0, 1]]
# steps = ["data_module", "training", "process_group", "wrap", "ddp"]
# after = ["Process group ready"]
# own_code = true
# calls = ["filelock"]
# ///
