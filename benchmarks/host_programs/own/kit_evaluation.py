"""Trains, and evaluates each few steps by the team's own package, installed in /tmp/kit."""

import sys

import torch
import torch.distributed as dist

sys.path.insert(0, "/tmp/kit")

import teamkit

torch.set_num_threads(1)


def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 1)
    for step in range(20):
        model.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        if step % 5 == 4:
            teamkit.evaluate(loss.detach().reshape(1), step)
            dist.barrier()
    dist.destroy_process_group()


main()
