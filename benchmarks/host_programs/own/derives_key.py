"""Ranks of mpirun's, of which each derives the key of its data before they meet, in one call."""

import hashlib
import os
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def derive_key():
    seconds = 0.2
    if os.path.exists("/tmp/rounds"):
        with open("/tmp/rounds") as file:
            seconds = float(file.read())
    began = time.monotonic()
    hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 100_000)
    each = time.monotonic() - began
    return hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", int(100_000 * seconds / each))


def main():
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    size = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=size)
    key = derive_key()
    loss = torch.tensor([float(key[0])])
    for _ in range(5):
        dist.all_reduce(loss)
    dist.destroy_process_group()


main()
