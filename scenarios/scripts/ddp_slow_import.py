"""A library of many modules, each of which computes while it is imported."""

import argparse
import importlib
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

MODULE = "TABLE = [sum(i * j for i in range(300)) for j in range({each})]\n"


def write_library(folder: Path, modules: int, each: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(modules):
        (folder / f"part{number}.py").write_text(MODULE.format(each=each))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--modules", type=int, default=200)
    parser.add_argument("--each", type=int, default=3000)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        write_library(Path("library"), args.modules, args.each)
    dist.barrier()
    sys.path.insert(0, "library")
    for number in range(args.modules):
        importlib.import_module(f"part{number}")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    for _ in range(8):
        model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --modules $AMOUNT --each 6000"
# outcome = "ok"
# ///
