"""Healthy and slow: a process outside the ranks has a lock and writes; all ranks want it.

It writes one line a second, under flock(), and frees the lock when it has written all.
"""

import argparse
import fcntl
import os
import subprocess
import sys
import time

WORLD = 3
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
parser.add_argument("--write", action="store_true")
args = parser.parse_args()


def write() -> None:
    with open("vocabulary.lock", "w") as lock, open("vocabulary.txt", "w") as words:
        fcntl.flock(lock, fcntl.LOCK_EX)
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            words.write("word\n")
            words.flush()
            time.sleep(1)


def train(rank: int, world: int) -> None:
    time.sleep(1)
    with open("vocabulary.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    print(f"rank {rank} trains", flush=True)


if args.write:
    write()
    sys.exit()
if "RANK" not in os.environ:
    subprocess.Popen([sys.executable, *sys.argv, "--write"], start_new_session=True)


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
