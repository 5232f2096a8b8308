"""The quick start of accelerate: a plain loop, and three lines that make it distributed."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(cpu=True)
    set_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters())
    data = TensorDataset(torch.randn(256, 16), torch.randint(4, (256,)))
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(data, batch_size=16, shuffle=True)
    )
    model.train()
    for epoch in range(2):
        for source, targets in loader:
            optimizer.zero_grad()
            accelerator.backward(F.cross_entropy(model(source), targets))
            optimizer.step()
        accelerator.print("epoch", epoch)
    accelerator.wait_for_everyone()
    seen = accelerator.gather(torch.tensor([len(loader)]))
    accelerator.print("batches", seen.tolist())
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=2 --mixed_precision=no --dynamo_backend=no train.py"""
# outcome = "ok"
# ///
