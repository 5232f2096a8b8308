"""Healthy: process 1 computes a whitening of all embeddings, one native call after another.

Each call of LAPACK takes many seconds on one core; the others wait for everyone.
"""

import argparse
import time

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def whitening(seconds: float) -> torch.Tensor:
    torch.set_num_threads(1)
    end = time.monotonic() + seconds
    rows = torch.randn(2600, 2600, dtype=torch.float64)
    while True:
        values, vectors = torch.linalg.eigh(rows.T @ rows)
        if time.monotonic() > end:
            return vectors / values.clamp_min(1e-9).sqrt()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=40.0)
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    if accelerator.process_index == 1:
        print("whitening", whitening(args.seconds).shape, flush=True)
    accelerator.wait_for_everyone()
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.randn(64, 16), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch).pow(2).mean())
        optimizer.step()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=3 --mixed_precision=no --dynamo_backend=no train.py --seconds $AMOUNT"""
# outcome = "ok"
# amount = 45.0
# limit = 240.0
# ///
