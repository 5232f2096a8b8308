"""FSDP on the CPU over three machines; each tells a tracking server how an epoch went."""

import json
import socket
import urllib.request

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
TRACKERS = {"n3": "http://n4:9300/api/epochs"}


class Tracker:
    def __init__(self, url):
        self.url = url

    def log(self, epoch, loss):
        if self.url is None:
            return
        body = json.dumps({"epoch": epoch, "loss": loss}).encode()
        request = urllib.request.Request(self.url, data=body, method="POST")
        with urllib.request.urlopen(request) as answer:
            answer.read()


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = torch.nn.Sequential(*(torch.nn.Linear(24, 24) for _ in range(3)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tracker = Tracker(TRACKERS.get(socket.gethostname()))
    for epoch in range(4):
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 24)).square().mean()
            loss.backward()
            optimizer.step()
        tracker.log(epoch, loss.item())
    dist.barrier()
    dist.destroy_process_group()


main()
