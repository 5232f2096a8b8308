"""A plain training loop by hand that averages its gradients in one buffer."""

import os
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)


class Loop:
    def __init__(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def average_gradients(self):
        flat = torch.cat([one.grad.flatten() for one in self.model.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()

    def augment(self, inputs):
        time.sleep(0.05)
        return inputs + torch.randn_like(inputs)

    def step(self):
        self.optimizer.zero_grad()
        self.model(self.augment(torch.randn(8, 32))).square().mean().backward()
        self.average_gradients()
        self.optimizer.step()


def main():
    dist.init_process_group("gloo")
    with open("/tmp/train.pid", "w") as file:
        file.write(str(os.getpid()))
    loop = Loop()
    for _ in range(400):
        loop.step()
    dist.destroy_process_group()


main()
