"""Process 1 writes its log into a named pipe whose reader no longer reads."""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True)
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.randn(64, 16), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    path = args.log if accelerator.process_index == 1 else Path("log.txt")
    with path.open("w") as log:
        for step, batch in enumerate(loader):
            accelerator.backward(model(batch).pow(2).mean())
            optimizer.step()
            print(f"step {step}:", [batch.tolist() for _ in range(8)], file=log, flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=2 --mixed_precision=no --dynamo_backend=no train.py --log $FIFO"""
# world = "unread_fifo"
# culprits = [[1]]
# waiting = [0]
# steps = ["training", "first_batch", "first_backward", "first_step", "steady"]
# after = ["First step done"]
# own_code = true
# calls = ["write", "print", 'train\.main']
# ///
