"""Six machines in a chain pass activations on; each fetches what its layers start from."""

import os
import urllib.request

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def fetch_weights(stage):
    url = f"{os.environ['ARTIFACTS']}/stage-{stage}.bin"
    with urllib.request.urlopen(url) as answer:
        return torch.frombuffer(bytearray(answer.read()), dtype=torch.float32).reshape(8, 8)


class Stage:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.weights = fetch_weights(self.rank)

    def forward(self):
        values = torch.randn(2, 8)
        if self.rank > 0:
            dist.recv(values, self.rank - 1)
        values = values @ self.weights
        if self.rank < self.world - 1:
            dist.send(values, self.rank + 1)


def main():
    dist.init_process_group("gloo")
    stage = Stage()
    for _ in range(20):
        stage.forward()
    dist.barrier()
    dist.destroy_process_group()


main()
