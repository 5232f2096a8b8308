"""Healthy and slow: four ranks have met, rank 1 packs the parts of a shard into one, and all make a
second group.
"""

import argparse
import time
import zlib

import torch
import torch.distributed as dist


def pack(seconds: float) -> int:
    """Compress parts for so long, and return how many bytes came of it."""
    end, size = time.monotonic() + seconds, 0
    part = bytes(range(256)) * 4000
    while time.monotonic() < end:
        size += len(zlib.compress(part, 9))
    return size


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(4))
    if rank == 1:
        print(f"packed {pack(given.seconds)} bytes", flush=True)
    second = dist.new_group(range(4))
    dist.all_reduce(torch.ones(4), group=second)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 40.0
# ///
