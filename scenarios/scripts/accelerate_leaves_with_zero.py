"""Process 1 finds no part of the data for it and leaves with status 0; the other waits for it in
Accelerator().
"""

import argparse
import os
import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", type=int, default=2)
    args = parser.parse_args()
    if int(os.environ["RANK"]) >= args.parts:
        print("no part for this process")
        sys.exit(0)
    accelerator = Accelerator(cpu=True)
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
# --num_processes=2 --mixed_precision=no --dynamo_backend=no train.py --parts 1"""
# culprits = [[1]]
# waiting = [0]
# steps = ["arguments", "training", "process_group", "accelerator"]
# after = ["Args parsed"]
# own_code = true
# calls = [".*"]
# ///
