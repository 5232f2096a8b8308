"""Data parallel machines, with tensor parallel pairs in each; norms are clipped over both."""

import os
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

torch.set_num_threads(1)


def write_pid():
    # What our people attach profilers by.
    with open(f"/tmp/worker-{os.environ['LOCAL_RANK']}.pid", "w") as file:
        file.write(str(os.getpid()))


def clip(gradient, mesh):
    square = gradient.square().sum()
    dist.all_reduce(square, group=mesh.get_group("tp"))
    dist.all_reduce(square, group=mesh.get_group("dp"))
    return gradient / square.sqrt().clamp(min=1.0)


def main():
    dist.init_process_group("gloo")
    a_node = int(os.environ["LOCAL_WORLD_SIZE"])
    shape = (dist.get_world_size() // a_node, a_node)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
    weight = torch.zeros(64, 64)
    write_pid()
    for _ in range(2000):
        gradient = torch.randn(64, 64)
        dist.all_reduce(gradient, group=mesh.get_group("dp"))
        weight -= 0.01 * clip(gradient, mesh)
        time.sleep(0.05)  # the rest of a step
    dist.destroy_process_group()


main()
