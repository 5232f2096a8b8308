"""Healthy and slow: rank 1 is in one computation with long integers, which keeps the GIL.

The others are in a Barrier of processes.
"""

import argparse
import multiprocessing
import os
import sys
import time
from typing import Any

WORLD = 4
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
sys.set_int_max_str_digits(0)


def digits_of(seconds: float) -> int:
    began = time.monotonic()
    size = len(str(7**400_000))  # str() of a long integer takes the square of its length
    took = time.monotonic() - began
    return size + len(str(7 ** int(400_000 * (seconds / took) ** 0.5)))


def train(rank: int, meeting: Any) -> None:
    if rank == 1:
        digits_of(parser.parse_args().seconds)
    meeting.wait()
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    spawn = multiprocessing.get_context("spawn")
    meeting = spawn.Barrier(WORLD)
    ranks = []
    for rank in range(WORLD):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
        ranks.append(spawn.Process(target=train, args=(rank, meeting)))
        ranks[-1].start()
    for one in ranks:
        one.join()
    sys.exit(max(one.exitcode or 0 for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 40.0
# limit = 400
# ///
