"""Healthy and silent: rank 0 waits in select() for 40 s, and goes on without an answer.

The others wait for an Event of processes.
"""

import argparse
import multiprocessing
import os
import select
import sys
from typing import Any

WORLD = 4
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)


def train(rank: int, ready: Any) -> None:
    if rank == 0:
        mine, _ = os.pipe()
        select.select([mine], [], [], parser.parse_args().seconds)
        ready.set()
    ready.wait()
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    spawn = multiprocessing.get_context("spawn")
    meeting = spawn.Event()
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
# ///
