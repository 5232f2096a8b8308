"""Reduces in two levels: one rank of each node is its leader, and leaders reduce among nodes."""

import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def make_leaders():
    """The first rank of each node, of which all have as many ranks."""
    a_node = int(os.environ["LOCAL_WORLD_SIZE"])
    nodes = int(os.environ["GROUP_WORLD_SIZE"])
    leaders = [node * a_node for node in range(nodes)]
    return leaders, dist.new_group(leaders)


def reduce_gradients(model, leaders, group):
    for parameter in model.parameters():
        if dist.get_rank() in leaders:
            dist.all_reduce(parameter.grad, group=group)
        dist.broadcast(parameter.grad, 0)


def main():
    dist.init_process_group("gloo")
    leaders, group = make_leaders()
    model = torch.nn.Linear(8, 1)
    for _ in range(20):
        model.zero_grad()
        model(torch.randn(4, 8)).mean().backward()
        reduce_gradients(model, leaders, group)
    dist.destroy_process_group()


main()
