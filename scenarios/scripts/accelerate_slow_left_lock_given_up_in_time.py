"""Healthy and silent: process 1 of three meets a lock file that a killed run left, and gives it up.

Its cache waits for a SoftFileLock for some time, takes it for left behind then, removes it and goes
on; the others are in the reduction behind it.
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from filelock import SoftFileLock, Timeout

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


class Cache:
    """A cache of token counts, whose lock is a file."""

    def __init__(self, patience: float) -> None:
        self.path = Path("counts.lock")
        self.patience = patience

    def count(self, rows: int) -> int:
        try:
            with SoftFileLock(self.path, timeout=self.patience):
                return rows * 12
        except Timeout:
            self.path.unlink(missing_ok=True)
            return self.count(rows)


def main() -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    total = torch.zeros(())
    if accelerator.process_index == 1:
        Path("counts.lock").write_text("4194301\nnode-7\n")  # of a run that was killed
        total += Cache(args.seconds).count(40)
    for _ in range(3):
        total = accelerator.reduce(total)
    accelerator.print(f"tokens: {total.item():.0f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=3 --mixed_precision=no --dynamo_backend=no train.py --seconds $AMOUNT"""
# outcome = "ok"
# amount = 40.0
# ///
