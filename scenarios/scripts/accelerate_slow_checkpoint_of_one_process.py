"""Healthy and slow: process 1 writes a checkpoint to a disk that takes a little at a time.

It waits for each piece to be on the disk, and the disk's quota lets one through every four
seconds; the others are in wait_for_everyone.
"""

import argparse
import io
import os
import time

import torch
from accelerate import Accelerator

PAUSE = 4.0  # seconds between two pieces


def save(weights: dict[str, torch.Tensor], pieces: int) -> None:
    memory = io.BytesIO()
    torch.save(weights, memory)
    body = memory.getvalue()
    size = -(-len(body) // pieces)
    with open("checkpoint.pt", "wb", buffering=0) as file:
        for place in range(0, len(body), size):
            file.write(body[place : place + size])
            os.fsync(file.fileno())
            time.sleep(PAUSE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    for step in range(6):
        optimizer.zero_grad()
        accelerator.backward(model(torch.randn(4, 256)).pow(2).mean())
        optimizer.step()
        if step == 3:
            if accelerator.process_index == 1:
                weights = accelerator.unwrap_model(model).state_dict()
                save(weights, max(1, round(args.seconds / PAUSE)))
            accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=3 --mixed_precision=no --dynamo_backend=no train.py --seconds $AMOUNT"""
# outcome = "ok"
# amount = 28.0
# limit = 240.0
# ///
