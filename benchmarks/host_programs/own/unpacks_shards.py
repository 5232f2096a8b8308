"""A training that mpirun starts; each rank unpacks its shard of the data set with tar."""

import os
import subprocess

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def take_environment():
    for name in ("RANK", "LOCAL_RANK", "SIZE"):
        own = "WORLD_SIZE" if name == "SIZE" else name
        os.environ[own] = os.environ[f"OMPI_COMM_WORLD_{name}"]


def unpack(shard, folder):
    os.makedirs(folder, exist_ok=True)
    tar = subprocess.Popen(
        ["tar", "--verbose", "-xf", shard, "-C", folder], stdout=subprocess.PIPE, text=True
    )
    if tar.wait() != 0:
        raise RuntimeError(f"tar: {shard}")
    return sorted(tar.stdout.read().split())


def main():
    take_environment()
    rank = int(os.environ["RANK"])
    names = unpack(f"/tmp/shard-{os.environ['LOCAL_RANK']}.tar", f"/tmp/unpacked-{rank}")
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 1)
    for _ in names[:10]:
        model.zero_grad()
        model(torch.randn(4, 8)).mean().backward()
        dist.all_reduce(model.weight.grad)
    dist.destroy_process_group()


main()
