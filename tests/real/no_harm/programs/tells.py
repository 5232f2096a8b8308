"""Prints and raises what it should not, also as the last thing before it waits."""

import os
import time

import torch

token = os.environ["HF_TOKEN"]
torch.load(f"https://u:p@ss@host/?token={token}")
time.sleep(4)
raise PermissionError(f"401 for Authorization: Bearer {token}, key {os.environ['WANDB_API_KEY']}")
