"""Rank 0 asks whether a folder may be overwritten, and nobody is there to answer."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if int(os.environ["RANK"]) == 0:
        args.out.mkdir(exist_ok=True)
        if input(f"{args.out} exists. Overwrite? [y/N] ") != "y":
            raise SystemExit(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --out out"
# world = "terminal"
# culprits = [[0]]
# waiting = [1]
# steps = ["arguments", "logs_directory", "process_group"]
# after = ["Args parsed"]
# own_code = true
# calls = ["input", "read", 'train\.main']
# ///
