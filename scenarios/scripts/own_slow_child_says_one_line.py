"""Healthy and silent: rank 1 reads the one line of a program that says it late.

The others are in a Barrier of processes.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
from typing import Any

WORLD = 3
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)


def warm_cache(seconds: float) -> str:
    command = f"sleep {seconds / 2:g}; sleep {seconds / 2:g}; echo warm"
    return subprocess.check_output(["sh", "-c", command], text=True).strip()


def train(rank: int, meeting: Any) -> None:
    if rank == 1:
        print(warm_cache(parser.parse_args().seconds), flush=True)
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
# amount = 50.0
# ///
