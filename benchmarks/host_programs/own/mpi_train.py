"""A training that mpirun starts on all machines; each reads its index of the data under a lock."""

import fcntl
import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def take_environment():
    """Torch wants the names of its own launcher."""
    os.environ["RANK"] = os.environ["OMPI_COMM_WORLD_RANK"]
    os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_SIZE"]
    os.environ["LOCAL_RANK"] = os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]


def read_index():
    with open("/tmp/index.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return list(range(64))


def main():
    take_environment()
    dist.init_process_group("gloo")
    index = read_index()
    model = torch.nn.Linear(8, 1)
    for _ in index[:10]:
        model.zero_grad()
        model(torch.randn(4, 8)).mean().backward()
        dist.all_reduce(model.weight.grad)
    dist.destroy_process_group()


main()
