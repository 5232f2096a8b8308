"""Healthy and slow: rank 1 reads a large file a little at a time; the others are in a Barrier."""

import argparse
import hashlib
import multiprocessing
import os
import sys
import time
from typing import Any

WORLD = 3
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)


def checksum(path: str, seconds: float) -> str:
    found, pause = hashlib.sha256(), seconds / 64
    with open(path, "rb", buffering=0) as file:
        while part := file.read(1 << 18):
            found.update(part)
            time.sleep(pause)  # what a busy file server takes
    return found.hexdigest()


def train(rank: int, meeting: Any) -> None:
    if rank == 1:
        checksum("weights.bin", parser.parse_args().seconds)
    meeting.wait()
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    with open("weights.bin", "wb") as file:
        file.write(os.urandom(1 << 24))
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
# amount = 45.0
# ///
