"""Healthy and silent: mp.spawn, four ranks meet at a barrier with a time limit that goes round.

Rank 2 comes late: its thread of a pool waits for a tape, and says nothing until it has it.
"""

import argparse
import datetime
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4


def mount(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def meet(store: dist.Store, rank: int) -> None:
    store.set(f"here/{rank}", "1")
    while True:
        try:
            store.wait([f"here/{one}" for one in range(WORLD)], datetime.timedelta(seconds=3))
            return
        except dist.DistStoreError:
            pass


def train(rank: int, port: int, seconds: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    store = dist.TCPStore("127.0.0.1", port + 1, WORLD, is_master=rank == 0)
    with ThreadPoolExecutor(1) as pool:
        waited = torch.tensor(pool.submit(mount, seconds if rank == 2 else 0.1).result())
    meet(store, rank)
    dist.all_reduce(waited)
    print(f"rank {rank}: {waited.item():.1f} s", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    mp.spawn(train, args=(args.port, args.seconds), nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
