"""DDP over a long line: each step has a gradient, a metric and a vote whether to stop early."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


def vote(stops):
    votes = [None] * dist.get_world_size()
    dist.all_gather_object(votes, stops)
    return all(votes)


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(12):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 64)).square().mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if vote(step >= 11):
            break
    dist.barrier()
    dist.destroy_process_group()


main()
