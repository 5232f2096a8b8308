"""HSDP over machines of two processes; who is to be preempted waits until its queue has said so."""

import os
import signal

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)


def stop_if_preempted():
    if os.path.exists(f"/tmp/preempted-{os.environ['LOCAL_RANK']}"):
        signal.sigwait({signal.SIGUSR1})


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    dist.init_process_group("gloo")
    a_node = int(os.environ["LOCAL_WORLD_SIZE"])
    nodes = dist.get_world_size() // a_node
    mesh = init_device_mesh("cpu", (nodes, a_node), mesh_dim_names=("replicate", "shard"))
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(2)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(1, 40):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        if step % 5 == 0:
            stop_if_preempted()
    dist.destroy_process_group()


main()
