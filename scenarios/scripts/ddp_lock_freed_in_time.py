"""Another program has the lock of the data, and lets go of it."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache-lock", type=Path, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    with FileLock(args.cache_lock):
        data = torch.randn(16, 16)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    for _ in range(8):
        model(data).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --cache-lock $LOCK"
# world = "lock_freed_in_time"
# outcome = "ok"
# ///
