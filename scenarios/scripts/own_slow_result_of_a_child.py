"""Healthy and slow: rank 2 waits in Future.result() for a child that sorts numbers.

The others connect to a port that rank 2 opens afterwards, and try again once a second.
"""

import argparse
import os
import random
import socket
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

WORLD = 4
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def tokenize(seconds: float) -> int:
    end, rows = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        rows += len(sorted(random.random() for _ in range(400_000)))
    return rows


def train(rank: int, world: int) -> None:
    if rank == 2:
        with ProcessPoolExecutor(1) as pool:
            assert pool.submit(tokenize, args.seconds).result() > 0
        with socket.create_server(("127.0.0.1", args.port)) as server:
            for _ in range(world - 1):
                server.accept()[0].close()
    else:
        while True:
            try:
                socket.create_connection(("127.0.0.1", args.port)).close()
                break
            except OSError:
                time.sleep(1)
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
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
