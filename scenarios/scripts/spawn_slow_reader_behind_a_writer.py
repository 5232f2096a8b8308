"""Healthy and slow: in rank 2 of four a thread rebuilds a table and has its lock meanwhile; the
step behind it waits for the lock.
"""

import argparse
import os
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4


class Table:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: list[str] = []

    def rebuild(self, seconds: float) -> None:
        with self.lock:
            end, rows = time.monotonic() + seconds, []
            while time.monotonic() < end:
                rows = sorted(str(hash(f"{len(rows)}-{n}")) for n in range(20_000))
            self.rows = rows

    def first(self) -> str:
        with self.lock:
            return self.rows[0] if self.rows else ""


def train(rank: int, port: str, seconds: float) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    table = Table()
    if rank == 2:
        threading.Thread(target=table.rebuild, args=(seconds,), name="rebuild").start()
        time.sleep(0.2)
    total = torch.ones(4)
    for step in range(3):
        table.first()
        dist.all_reduce(total)
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    mp.spawn(train, args=(given.port, given.seconds), nprocs=WORLD)

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 40.0
# ///
