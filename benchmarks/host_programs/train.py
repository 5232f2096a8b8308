"""A small model trained by hand with torch.distributed over gloo, started by torchrun."""

import os

import torch
import torch.distributed as dist
from faults import come_to, is_here
from settings import BATCHES

torch.set_num_threads(1)


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        come_to("collective")
        parameter.grad /= dist.get_world_size()


def train_step(model, optimizer):
    batch = torch.randn(16, 8)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    average_gradients(model)
    optimizer.step()


def evaluate(model):
    loss = model(torch.randn(16, 8)).square().mean().detach()
    if os.environ["FAULT_KIND"] == "skips" and is_here("collective"):
        return loss
    dist.all_reduce(loss)
    return loss


def main():
    come_to("before")
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in range(BATCHES):
        if batch == 0:
            come_to("first")
        train_step(model, optimizer)
    come_to("between")
    evaluate(model)
    scores = [None] * dist.get_world_size()
    dist.all_gather_object(scores, dist.get_rank())
    come_to("end")
    dist.barrier()
    dist.destroy_process_group()


main()
