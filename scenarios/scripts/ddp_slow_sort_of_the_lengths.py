"""Healthy and slow: rank 2 of four sorts its lengths in native calls that keep the GIL.

Each sort takes some seconds in which no line of Python is run; the others wait for its order.
"""

import argparse
import random
import time

import torch
import torch.distributed as dist


def order(seconds: float) -> list[int]:
    """Sort larger and larger lists of lengths, until the time is over."""
    rows = list(range(200_000))
    end = time.monotonic() + seconds
    generator = random.Random(0)
    while time.monotonic() < end:
        keys = [generator.random() for _ in range(len(rows))]
        rows.sort(key=keys.__getitem__)
        if len(rows) < 2_000_000:
            rows = list(range(2 * len(rows)))
    return rows[:16]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for epoch in range(2):
        rows = order(args.seconds if rank == 2 and epoch == 0 else 0.1)
        first = torch.tensor(rows if rank == 2 else [0] * 16)
        dist.broadcast(first, src=2)
        if rank == 0:
            print(f"epoch {epoch} begins with {int(first[0])}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# ///
