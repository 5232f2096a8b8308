"""Healthy and silent: rank 0 sleeps with a lock of lockf() that the other ranks want."""

import argparse
import fcntl
import os
import subprocess
import sys
import threading

WORLD = 4
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def download(seconds: float) -> None:
    threading.Event().wait(seconds)


def train(rank: int, world: int) -> None:
    with open("weights.lock", "w") as lock:
        if rank:
            threading.Event().wait(2.0)
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if rank == 0:
            download(args.seconds)
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
# amount = 50.0
# ///
