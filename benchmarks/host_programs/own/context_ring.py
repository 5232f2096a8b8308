"""Context parallelism: each machine has a part of the sequence; keys go round a ring of them."""

import json

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def read_window():
    """How many parts back a query looks, from this machine's configuration."""
    with open("/tmp/model.json") as file:
        return json.load(file)["window"]


class RingAttention:
    def __init__(self, window):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.left, self.right = (self.rank - 1) % self.world, (self.rank + 1) % self.world
        self.window = window
        self.query = torch.randn(16, 8)

    def shift(self, keys, wanted):
        sending = dist.isend(keys, self.right)
        if wanted:
            keys = torch.empty_like(keys)
            dist.recv(keys, self.left)
        sending.wait()
        return keys

    def __call__(self):
        keys, out = torch.randn(16, 8), torch.zeros(16, 8)
        for turn in range(1, self.world):
            out += torch.softmax(self.query @ keys.T, -1) @ keys
            keys = self.shift(keys, wanted=turn <= self.window)
        return out


def main():
    dist.init_process_group("gloo")
    attention = RingAttention(read_window())
    for _ in range(3):
        loss = attention().square().mean()
        dist.all_reduce(loss)
    dist.destroy_process_group()


main()
