"""Healthy and slow: rank 0 writes a checkpoint to a FIFO that an uploader reads a little at a time.

The uploader takes 64 KiB, sends them away for many seconds, and takes the next. The others are in
a barrier of multiprocessing.
"""

import argparse
import multiprocessing
import os
import time
from typing import Any


def upload(path: str, seconds: float) -> None:
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 16):
            time.sleep(seconds / 3)


def train(rank: int, world: int, barrier: Any) -> None:
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(world)})
    if rank == 0:
        with open("upload", "wb", buffering=0) as file:
            for _ in range(4):
                file.write(bytes(1 << 16))
    barrier.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--world", type=int, default=3)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    os.mkfifo("upload")
    uploader = context.Process(target=upload, args=("upload", args.seconds))
    barrier = context.Barrier(args.world)
    ranks = [
        context.Process(target=train, args=(r, args.world, barrier)) for r in range(args.world)
    ]
    for one in (uploader, *ranks):
        one.start()
    for one in (uploader, *ranks):
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# ///
