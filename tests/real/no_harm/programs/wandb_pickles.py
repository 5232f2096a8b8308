"""Pickles wandb's functions: at once, and after steps of a training."""

import pickle

import torch
import wandb


def say():
    for name in ("init", "login", "finish", "setup"):
        function = getattr(wandb, name)
        try:
            again = pickle.loads(pickle.dumps(function))
            print(name, "pickles" if again is function else "pickles as another")
        except Exception as error:
            print(name, type(error).__name__, error)


say()
for _ in range(10):
    torch.optim.SGD().step()
say()
