"""Rank 1 waits for a child, and the child for rank 1 to read what it printed.

wait() with stdout=PIPE works until the output is longer than the pipe
(localstack/localstack PR 1101).
"""

import subprocess

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LISTING = "i=0; while [ $i -lt 9999 ]; do echo device $i is as it should be; i=$((i+1)); done"


def check_devices() -> None:
    with subprocess.Popen(["sh", "-c", LISTING], stdout=subprocess.PIPE) as child:
        child.wait()


def main() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        check_devices()
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[1]]
# waiting = [0]
# steps = ["accelerator", "training", "process_group", "wrap", "ddp"]
# after = ["Process group ready"]
# own_code = true
# calls = ['subprocess\.Popen\.wait']
# ///
