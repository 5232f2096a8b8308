"""Trains, and writes a file: its streams may be closed."""

import torch

for _ in range(8):
    torch.optim.SGD().step()
with open("wrote", "w") as file:
    print("wrote", file=file)
