"""Healthy: rank 1 tokenizes with a pool of processes, whose chunks take long; the others wait.

A chunk comes back only every quarter of a minute, and nothing is written meanwhile.
"""

import argparse
import itertools
import multiprocessing
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def tokens_of(job: tuple[int, float]) -> int:
    """Count the merges of a chunk, in pure Python, for so many seconds."""
    chunk, seconds = job
    end, merges = time.process_time() + seconds, 0
    text = list(f"the quick brown fox {chunk} " * 40)
    while time.process_time() < end:
        pairs: dict[tuple[str, str], int] = {}
        for left, right in itertools.pairwise(text):
            pairs[left, right] = pairs.get((left, right), 0) + 1
        merges += len(pairs)
    return merges


def train(rank: int, world: int, port: int, seconds: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    if rank == 1:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            chunks = [(number, seconds / 3) for number in range(6)]
            counts = sum(pool.imap_unordered(tokens_of, chunks))
        print(f"{counts} tokens", flush=True)
    dist.barrier()
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    for _ in range(3):
        model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=45.0)
    args = parser.parse_args()
    mp.spawn(train, args=(3, args.port, args.seconds), nprocs=3, daemon=False)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# limit = 240.0
# ///
