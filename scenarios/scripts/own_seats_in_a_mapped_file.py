"""Ranks count rounds in a mapped file; rank 3 puts a new file in its place, and counts in that one.

All look at the bytes of all, again and again. Rank 3 maps another file than the others: each sees
that the others have not come.
"""

import argparse
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

WORLD = 5
SEATS = Path("seats.bin")


def mapped() -> mmap.mmap:
    with SEATS.open("r+b") as file:
        return mmap.mmap(file.fileno(), WORLD)


def repaired(file: Path) -> None:
    """Write a file again that is said to be damaged."""
    fresh = file.with_suffix(".new")
    fresh.write_bytes(bytes(WORLD))
    fresh.replace(file)


def meet(seats: mmap.mmap, rank: int, turn: int) -> None:
    seats[rank] = turn
    while min(seats[:WORLD]) < turn:
        time.sleep(0.02)


def train(rank: int) -> None:
    seats = mapped()
    for turn in range(1, 9):
        if rank == 3 and turn == 4:
            repaired(SEATS)
            seats = mapped()
        meet(seats, rank, turn)
        print(f"rank {rank} round {turn}", flush=True)
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fresh", action="store_true")
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
        return
    if args.fresh or not SEATS.exists():
        SEATS.write_bytes(bytes(WORLD))
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, "train.py"], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --fresh"
# culprits = [[3], [0, 1, 2, 3, 4], []]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['sleep', 'meet', 'train']
# causes = ["polling-loop", "other-round", "unknown"]
# ///
