"""Healthy and slow: four ranks take a lock in the TCPStore in turns, each of which is long.

Who has the lock writes its part of an index with pauses, as a shared disk that is full of others'
requests lets it; the others look for the lock again and again.
"""

import argparse
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def write_part(store: dist.Store, rank: int) -> None:
    own = str(rank).encode()
    while store.compare_set("index/lock", "free", str(rank)) != own:
        time.sleep(0.25)
    with open("index.txt", "a") as index:
        for part in range(4):
            time.sleep(args.seconds / 4)
            index.write(f"{rank} {part}\n")
            index.flush()
    store.set("index/lock", "free")


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set("index/lock", "free")
    dist.barrier()
    write_part(store, rank)
    dist.barrier()
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 24.0
# limit = 300.0
# ///
