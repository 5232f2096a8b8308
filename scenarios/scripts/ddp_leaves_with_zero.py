"""Rank 1 finds nothing to do for it and leaves with status 0: torchrun takes that for success."""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=1)
    args = parser.parse_args()
    rank = int(os.environ["RANK"])
    if rank >= args.shards:
        print(f"rank {rank}: no shard left for me")
        sys.exit(0)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --shards 1"
# culprits = [[1]]
# waiting = [0]
# steps = ["arguments", "training", "process_group"]
# after = ["Args parsed"]
# own_code = true
# calls = [".*"]
# ///
