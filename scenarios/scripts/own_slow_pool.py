"""Healthy and slow: rank 1 prepares shards in a pool of processes, in long native calls.

The others look every second whether its marker is there.
"""

import argparse
import concurrent.futures
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path


def prepare(seconds: float) -> int:
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"shard", b"salt", 2_000_000)
        rounds += 1
    return rounds


def train(rank: int, seconds: float) -> None:
    marker = Path("prepared")
    if rank == 1:
        with concurrent.futures.ProcessPoolExecutor(2) as pool:
            list(pool.map(prepare, [seconds, 1.0]))
        marker.touch()
    while not marker.exists():
        time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--world", type=int, default=3)
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), args.seconds)
        return
    ranks = []
    for rank in range(args.world):
        own = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(args.world),
            "LOCAL_RANK": str(rank),
        }
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
