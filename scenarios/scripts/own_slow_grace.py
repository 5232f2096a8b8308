"""Healthy and silent: all ranks sleep for the same time before they start."""

import argparse
import os
import subprocess
import sys
import time

WORLD = 5
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def train(rank: int, world: int) -> None:
    time.sleep(args.seconds)  # the file server is slow in the first half minute
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
# amount = 30.0
# ///
