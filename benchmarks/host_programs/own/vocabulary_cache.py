"""The first rank of a machine makes the vocabulary under a lock, the others of it wait and read."""

import os

import torch
import torch.distributed as dist
from filelock import SoftFileLock

torch.set_num_threads(1)
CACHE = "/tmp/vocabulary"


def make_vocabulary():
    with SoftFileLock(f"{CACHE}/vocab.lock"):
        if not os.path.exists(f"{CACHE}/vocab.txt"):
            with open(f"{CACHE}/vocab.txt", "w") as file:
                file.writelines(f"word{n}\n" for n in range(1000))


def load_vocabulary():
    if int(os.environ["LOCAL_RANK"]) == 0:
        os.makedirs(CACHE, exist_ok=True)
        make_vocabulary()
    dist.barrier()
    with open(f"{CACHE}/vocab.txt") as file:
        return file.read().split()


def main():
    dist.init_process_group("gloo")
    size = torch.tensor(float(len(load_vocabulary())))
    dist.all_reduce(size)
    embedding = torch.nn.Embedding(int(size) // dist.get_world_size(), 4)
    for _ in range(5):
        gradient = torch.randn_like(embedding.weight)
        dist.all_reduce(gradient)
    dist.destroy_process_group()


main()
