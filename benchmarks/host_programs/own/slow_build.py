"""One machine has to build its kernels first: a compiler runs for a while, and prints nothing."""

import os
import subprocess

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def build():
    subprocess.run(["sh", "/tmp/build.sh"], check=True, capture_output=True)


def main():
    dist.init_process_group("gloo")
    if os.path.exists("/tmp/build.sh"):
        build()
    dist.barrier()
    for _ in range(5):
        dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()


main()
