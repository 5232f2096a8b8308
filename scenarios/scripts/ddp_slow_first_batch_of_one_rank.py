"""Healthy and slow: rank 2's loader worker decrypts its first shard in one long native call.

The others have their first batches and wait in their first backward for rank 2.
"""

import argparse
import hashlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


def key_of(shard: int, seconds: float) -> bytes:
    """Derive the key of a shard: as many rounds as fill the time."""
    began = time.monotonic()
    hashlib.pbkdf2_hmac("sha256", b"warm", b"salt", 200_000)
    rounds = int(200_000 * seconds / (time.monotonic() - began))
    return hashlib.pbkdf2_hmac("sha256", b"%d" % shard, b"salt", max(rounds, 1))


class Shard(IterableDataset[torch.Tensor]):
    def __init__(self, number: int, seconds: float) -> None:
        self.number, self.seconds = number, seconds

    def __iter__(self):
        key = key_of(self.number, self.seconds)
        for place in range(48):
            yield torch.full((16,), key[place % len(key)] / 255)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    shard = Shard(rank, args.seconds if rank == 2 else 0.1)
    for batch in DataLoader(shard, batch_size=4, num_workers=1):
        model(batch).pow(2).mean().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# limit = 240.0
# ///
