"""Healthy and slow: mp.spawn, rank 1 builds an index in SQLite, and commits each few rows.

Its commits go to the disk, with a pause of the writer's own after each; the others wait at the
Barrier of multiprocessing for its index.
"""

import argparse
import sqlite3
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 3


def build(name: str, seconds: float) -> None:
    index = sqlite3.connect(name)
    index.execute("create table samples (id integer primary key, place integer, text blob)")
    end, row = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        rows = [(row + n, 512 * (row + n), bytes(400)) for n in range(200)]
        index.executemany("insert into samples values (?, ?, ?)", rows)
        index.commit()
        row += len(rows)
        time.sleep(1.5)  # the limit of writes to a shared disk
    index.close()


def train(rank: int, port: int, seconds: float, built: object) -> None:
    torch.set_num_threads(1)
    if rank == 1:
        build("samples.db", seconds)
    built.wait()
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    count = sqlite3.connect("samples.db").execute("select count(*) from samples").fetchone()[0]
    total = torch.tensor(count)
    dist.all_reduce(total)
    print(f"rank {rank}: {int(total)}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    built = mp.get_context("spawn").Barrier(WORLD)
    mp.spawn(train, args=(args.port, args.seconds, built), nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# ///
