"""Each machine compiles its part of the model at its first step; some parts take long."""

import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)

    def forward(self, x):
        return x + self.second(torch.nn.functional.gelu(self.first(x).softmax(-1)))


def main():
    dist.init_process_group("gloo")
    blocks = int(os.environ.get("BLOCKS", "1"))
    model = torch.compile(torch.nn.Sequential(*(Block() for _ in range(blocks))))
    for _ in range(3):
        loss = model(torch.randn(4, 32)).square().mean()
        dist.all_reduce(loss.detach())
    dist.barrier()
    dist.destroy_process_group()


main()
