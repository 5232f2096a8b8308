"""Healthy and silent: rank 1's backup has the lock of a SQLite database, and gives it back late.

Rank 2 wants to write and waits for it in SQLite, the others wait for rank 2 in a barrier of gloo.
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import time

import torch
import torch.distributed as dist

WORLD = 3
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def back_up(seconds: float) -> None:
    base = sqlite3.connect("runs.db", timeout=600, isolation_level=None)
    base.execute("BEGIN EXCLUSIVE")
    base.execute("CREATE TABLE kept AS SELECT * FROM runs")
    time.sleep(seconds)
    base.execute("COMMIT")


def note_run(rank: int) -> None:
    base = sqlite3.connect("runs.db", timeout=600)
    base.execute("INSERT INTO runs VALUES (?)", (f"run of {rank}",))
    base.commit()
    base.close()


def train(rank: int) -> None:
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=WORLD
    )
    if rank == 1:
        back_up(args.seconds)
    elif rank == 2:
        time.sleep(1)
        note_run(rank)
    dist.barrier()
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"rank {rank} trains with {total.item():.0f}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
        return
    with sqlite3.connect("runs.db") as base:
        base.execute("CREATE TABLE runs (name TEXT)")
    base.close()
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
