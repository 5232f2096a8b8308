"""Healthy: rank 2 of four fails once, torchrun starts all anew, and rank 2 loads for long then.

It had written half of its cache, and throws that away; the others are in the first barrier.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def load(rank: int, attempt: int) -> torch.Tensor:
    if rank == 2 and attempt:
        time.sleep(args.seconds)  # fetches its shard once more, by a service that is slow
    return torch.randn(32, 8)


def main() -> None:
    torch.set_num_threads(1)
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rows = load(rank, attempt)
    dist.barrier()
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    for step in range(6):
        model(rows).pow(2).mean().backward()
        model.zero_grad()
        if rank == 2 and step == 3 and not attempt:
            raise OSError(5, "Input/output error", "shard-2.bin")
    print(f"rank {rank}: done in attempt {attempt}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 --max-restarts=2 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 40.0
# ///
