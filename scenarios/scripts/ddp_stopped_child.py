"""Rank 0 unpacks its data with tar, and tar has been stopped."""

import os
import signal
import subprocess

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def unpack() -> None:
    child = subprocess.Popen(["tar", "--extract", "--file", "-"], stdin=subprocess.PIPE)
    os.kill(child.pid, signal.SIGSTOP)  # stands for a terminal that it must not write to
    child.communicate()


def main() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        unpack()
    dist.barrier()
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[0]]
# waiting = [1]
# steps = ["training", "process_group", "prepare_data", "data_module", "barrier", "first_barrier"]
# after = ["Process group ready"]
# own_code = true
# calls = ['subprocess\.Popen\.(communicate|wait)']
# ///
