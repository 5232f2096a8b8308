"""Rank 0 of three sleeps while a service warms up, and then lets the others go; healthy.

It writes nothing and computes nothing meanwhile. They look for a file that it makes at the end.
"""

import argparse
import os
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    rank, ready = int(os.environ["RANK"]), Path("ready")
    if rank == 0:
        time.sleep(args.seconds)
        ready.touch()
    while not ready.exists():
        time.sleep(0.2)
    print(f"rank {rank} goes on", flush=True)
    time.sleep(1)


main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 30.0
# limit = 200.0
# ///
