"""A sharded model on all ranks; each machine writes its shards, and an agent of it uploads them."""

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

torch.set_num_threads(1)


def save(step, layers):
    folder = f"/tmp/checkpoints/step_{step}"
    os.makedirs(folder, exist_ok=True)
    checkpoint.save({"layers": layers, "step": step}, checkpoint_id=folder)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layers = {
        str(number): distribute_tensor(torch.randn(64, 64), mesh, [Shard(0)]) for number in range(3)
    }
    for step in range(1, 7):
        for layer in layers.values():
            gradient = torch.randn(16)
            dist.all_reduce(gradient)
            layer.to_local().mul_(1 - 1e-3 * gradient.mean().abs())
        if step % 2 == 0:
            save(step, layers)
    dist.barrier()
    dist.destroy_process_group()


main()
