"""Healthy and slow: rank 3 computes for long and writes a marker; the others poll for it."""

import argparse
import os
import pathlib
import subprocess
import sys
import time

WORLD = 4
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def statistics(seconds: float) -> float:
    end, total = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        for n in range(1, 200_000):
            total += 1.0 / (n * n)
    return total


def train(rank: int, world: int) -> None:
    marker = pathlib.Path("statistics.txt")
    if rank == 3:
        marker.write_text(f"{statistics(args.seconds)}")
    while not marker.exists():
        time.sleep(0.25)
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), WORLD)
        return
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
