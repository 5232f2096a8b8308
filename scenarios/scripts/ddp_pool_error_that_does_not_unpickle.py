"""Rank 2 of three reads its pictures in a multiprocessing.Pool; one raises an error whose class
wants two arguments, which the pool's thread for results cannot unpickle.
"""

import multiprocessing
import os

import torch
import torch.distributed as dist


class PictureError(Exception):
    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


def read(path: str) -> int:
    if path.endswith("7"):
        raise PictureError(path, "truncated")
    return len(path)


def prepare(rank: int) -> list[int]:
    paths = [f"{'train' if rank == 2 else 'valid'}/{n}" for n in range(12 if rank == 2 else 6)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(read, paths, chunksize=2)


def main() -> None:
    dist.init_process_group("gloo")
    sizes = prepare(int(os.environ["RANK"]))
    total = torch.tensor([sum(sizes)])
    dist.all_reduce(total)
    print(total.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[2]]
# waiting = [0, 1]
# steps = ["script", "first_map", "training"]
# after = ["Process group ready", "Process group initialized", ""]
# own_code = true
# calls = ['Pool\.map', 'map', 'prepare', 'get']
# causes = ["dead-producer", "swallowed-exception", "thread-stuck", "pool-worker-lost"]
# ///
