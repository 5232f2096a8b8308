"""A training of accelerate that has each machine's first process prepare the data of an epoch."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def prepare_epoch(accelerator, epoch):
    with open(f"/tmp/epoch-{epoch}", "w") as file:
        file.write("ready")
    accelerator.wait_for_everyone()


def main():
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=8)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for epoch in range(3):
        if epoch and accelerator.is_local_main_process:
            prepare_epoch(accelerator, epoch)
        for inputs, targets in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
    accelerator.end_training()


main()
