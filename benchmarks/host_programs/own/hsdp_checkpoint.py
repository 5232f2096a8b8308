"""HSDP: shards within a machine, replicas across machines; checkpoints in a folder of the job."""

import os
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
FOLDER = "/tmp/checkpoints"


def save(model, step):
    """Each machine writes its part; who comes first on the cluster says when all may go on."""
    folder = f"{FOLDER}/step-{step}"
    os.makedirs(folder, exist_ok=True)
    shard = {name: value.to_local() for name, value in model.state_dict().items()}
    torch.save(shard, f"{folder}/shard-{dist.get_rank()}.pt")
    if dist.get_rank() == 0:
        with open(f"{folder}/COMPLETE", "w") as file:
            file.write(str(step))
    if int(os.environ["LOCAL_RANK"]) == 0:
        while not os.path.exists(f"{folder}/COMPLETE"):
            time.sleep(0.5)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    a_node = int(os.environ["LOCAL_WORLD_SIZE"])
    nodes = dist.get_world_size() // a_node
    mesh = init_device_mesh("cpu", (nodes, a_node), mesh_dim_names=("replicate", "shard"))
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(2)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 9):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        if step % 4 == 0:
            save(model, step)
    dist.destroy_process_group()


main()
