"""A small training by accelerate, which makes a group of the machines that its command names."""

import torch
from accelerate import Accelerator

torch.set_num_threads(1)


def main():
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    for _ in range(10):
        optimizer.zero_grad()
        accelerator.backward(model(torch.randn(4, 8)).mean())
        optimizer.step()
    accelerator.wait_for_everyone()
    accelerator.print(f"{accelerator.num_processes} processes are done")
    accelerator.end_training()


main()
