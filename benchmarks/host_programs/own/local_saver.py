"""Training in which the first process of each machine saves, and waits until all have saved."""

import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)
IS_FIRST_HERE = os.environ["LOCAL_RANK"] == "0"


def save_checkpoint(model, number):
    if IS_FIRST_HERE:
        torch.save(model.state_dict(), f"/tmp/checkpoint-{number}.pt")
        dist.barrier()


def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(12):
        loss = model(torch.randn(16, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        dist.all_reduce(model.bias.grad)
        optimizer.step()
        if number % 4 == 3:
            save_checkpoint(model, number)
    dist.destroy_process_group()


main()
