"""Each of four ranks serves the rows of its shard from a thread, under the lock of its cache; the
refresh of a cache sums over all ranks, and keeps that lock. Rank 3 still asks rank 1 for a row.

Rank 3 waits for a thread of its own, this one for the server of rank 1, this one for the lock,
and who has the lock for rank 3 in the sum.
"""

import argparse
import concurrent.futures
import os
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4
WIDTH = 16


class Cache:
    def __init__(self, rank: int) -> None:
        self.rank, self.lock = rank, threading.Lock()
        self.rows = torch.full((8, WIDTH), float(rank))
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"rows-{rank}.sock")
        self.listener.listen()
        self.pool = concurrent.futures.ThreadPoolExecutor(2, "fetch")
        threading.Thread(target=self._serve, name="rows", daemon=True).start()

    def _serve(self) -> None:
        while True:
            asker, _ = self.listener.accept()
            with asker:
                row = asker.recv(1)[0]
                with self.lock:
                    asker.sendall(self.rows[row].numpy().tobytes())

    def _fetch(self, owner: int, row: int) -> torch.Tensor:
        answer = bytearray(WIDTH * 4)
        with socket.socket(socket.AF_UNIX) as asks:
            asks.connect(f"rows-{owner}.sock")
            asks.sendall(bytes([row]))
            view = memoryview(answer)
            while view:
                view = view[asks.recv_into(view) :]
        return torch.frombuffer(answer, dtype=torch.float32)

    def gathered(self, wanted: list[tuple[int, int]]) -> list[torch.Tensor]:
        futures = [self.pool.submit(self._fetch, *one) for one in wanted]
        concurrent.futures.wait(futures)
        return [one.result() for one in futures]

    def refresh(self) -> None:
        with self.lock:
            mean = self.rows.mean(0)
            dist.all_reduce(mean)
            self.rows += 0.01 * mean


def train(rank: int, port: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    cache = Cache(rank)
    dist.barrier()
    for step in range(10):
        if step != 4:
            cache.gathered([((rank + 1) % WORLD, step % 8)])
            dist.barrier()
        elif rank == 3:
            time.sleep(1.0)  # a batch with longer texts
            cache.gathered([(1, 5)])
        cache.refresh()
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    mp.spawn(train, args=(parser.parse_args().port,), nprocs=WORLD)

# /// case
# command = "python train.py --port $PORT"
# culprits = [[1], [1, 3]]
# waiting = [0, 2]
# steps = [
#   "process_group", "first_all_reduce", "all_reduce", "first_barrier", "barrier", "training",
#   "steady",
# ]
# after = ["First all_reduce done", "Barrier passed", "Process group ready", ""]
# own_code = true
# calls = ['all_reduce', 'refresh', 'acquire', '_serve', '__enter__', 'gathered', '_fetch']
# causes = ["deadlock"]
# says = ['lock']
# ///
