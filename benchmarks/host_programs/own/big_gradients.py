"""Data parallel by hand: gradients of all layers are flattened and reduced in one piece."""

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


def flatten(model):
    return torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])


def spread(model, flat):
    at = 0
    for parameter in model.parameters():
        size = parameter.numel()
        parameter.grad.copy_(flat[at : at + size].view_as(parameter))
        at += size


def train_step(model, optimizer):
    loss = model(torch.randn(8, 512)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    flat = flatten(model)
    dist.all_reduce(flat)
    spread(model, flat / dist.get_world_size())
    optimizer.step()


def main():
    dist.init_process_group("gloo")
    ready = torch.ones(1)
    dist.all_reduce(ready)
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        train_step(model, optimizer)
    dist.destroy_process_group()


main()
