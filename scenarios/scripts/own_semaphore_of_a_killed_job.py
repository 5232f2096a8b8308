"""Rank 3 of five wants a slot of the tape drive: a semaphore in a mapped file, with none left.

A job that was killed had taken the only one (sem_init, shared); rank 3 waits for it in a C call.
"""

import ctypes
import mmap
import os
from pathlib import Path

import torch
import torch.distributed as dist

LIBC = ctypes.CDLL(None, use_errno=True)


class Drive:
    """One job at a time reads from tape."""

    def __init__(self, path: Path, slots: int) -> None:
        is_new = not path.exists()
        with path.open("a+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._semaphore = (ctypes.c_char * 32).from_buffer(mmap.mmap(file.fileno(), 0))
        if is_new:
            LIBC.sem_init(self._semaphore, 1, slots)

    def __enter__(self) -> "Drive":
        LIBC.sem_wait(self._semaphore)
        return self

    def __exit__(self, *error: object) -> None:
        LIBC.sem_post(self._semaphore)


def killed_job() -> None:
    """What the job before has left: it was killed between wait and post."""
    child = os.fork()
    if child == 0:
        Drive(Path("tape.slots"), 1).__enter__()
        os._exit(9)
    os.waitpid(child, 0)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 3:
        killed_job()
    total = torch.zeros(4)
    for step in range(6):
        if rank == 3 and step == 2:  # the others have theirs on disk
            with Drive(Path("tape.slots"), 1):
                total += 1.0
        dist.all_reduce(total)
        print(f"rank {rank} step {step}: {total.sum().item():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# waiting = [0, 1, 2, 4]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "all_reduce", "first_all_reduce",
# ]
# after = ["Process group ready", "First all_reduce done", ""]
# own_code = true
# calls = ['Drive', '__enter__', 'sem_wait', 'train\.main']
# causes = ["native-call", "dead-owner"]
# ///
