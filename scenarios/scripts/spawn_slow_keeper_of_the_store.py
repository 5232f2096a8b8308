"""Healthy and slow: mp.spawn, four ranks; rank 0, which serves the store, sorts a large table.

The others wait for its key in store.wait(); no look shows rank 0 in another line.
"""

import argparse
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4


def train(rank: int, port: int, seconds: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            torch.rand(20_000_000).sort()
        store.set("order", "0")
    store.wait(["order"])
    dist.barrier()
    print(f"rank {rank} is done", flush=True)
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
# limit = 300.0
# ///
