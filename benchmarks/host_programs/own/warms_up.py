"""A training that waits for the cache of its file system to be warm, as the site recommends."""

import os
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def warm_up():
    until = time.monotonic() + float(os.environ.get("COMPUTE_SECONDS", "1"))
    while time.monotonic() < until:
        torch.randn(64, 64) @ torch.randn(64, 64)
    time.sleep(float(os.environ.get("SETTLE_SECONDS", "1")))


def take_environment():
    """Torch wants the names of its own launcher, where mpirun starts the ranks."""
    for name in ("RANK", "SIZE"):
        if value := os.environ.get(f"OMPI_COMM_WORLD_{name}"):
            os.environ["WORLD_SIZE" if name == "SIZE" else name] = value


def main():
    take_environment()
    dist.init_process_group("gloo")
    if os.path.exists("/tmp/cold"):
        os.environ.update(COMPUTE_SECONDS="15", SETTLE_SECONDS="30")
    warm_up()
    for _ in range(10):
        dist.all_reduce(torch.ones(8))
    dist.destroy_process_group()
    print("done", flush=True)


main()
