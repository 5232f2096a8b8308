"""Healthy and silent: three ranks are in store.wait() until rank 1 has merged its vocabulary.

It merges in another process, over sorted runs in a SQLite database, and sets the key after that.
"""

import argparse
import datetime
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import time

from torch.distributed import TCPStore

WORLD = 4
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def merge(seconds: float) -> None:
    base = sqlite3.connect("vocabulary.db")
    base.execute("CREATE TABLE words (word TEXT PRIMARY KEY, number INTEGER)")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run = [(f"w{number}", number) for number in range(500)]
        base.executemany(
            "INSERT INTO words VALUES (?, ?) ON CONFLICT DO UPDATE SET number = number + 1", run
        )
        base.commit()
        time.sleep(0.5)
    base.close()


def train(rank: int) -> None:
    store = TCPStore(
        "127.0.0.1",
        args.port,
        WORLD,
        is_master=rank == 0,
        timeout=datetime.timedelta(minutes=30),
    )
    if rank == 1:
        merger = multiprocessing.Process(target=merge, args=(args.seconds,), name="merger")
        merger.start()
        merger.join()
        store.set("vocabulary", "vocabulary.db")
    store.wait(["vocabulary"])
    print(f"rank {rank} trains with {store.get('vocabulary').decode()}", flush=True)
    store.add("done", 1)
    while rank == 0 and store.add("done", 0) < WORLD:
        time.sleep(0.2)


def main() -> None:
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
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
# amount = 50.0
# limit = 400.0
# ///
