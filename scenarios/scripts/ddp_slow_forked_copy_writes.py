"""Healthy and silent: rank 1 of three forks, and its copy writes the state to a disk that is slow.

Rank 1 waits for the copy at the end, and the others for rank 1 in the last barrier.
"""

import argparse
import os
import pickle
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def write_aside(state: list[float]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        with open("state.pkl", "wb") as file:
            for part in range(4):
                time.sleep(args.seconds / 4)
                pickle.dump((part, state), file)
    finally:
        os._exit(0)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    total, copy = torch.zeros(4), 0
    for step in range(8):
        part = torch.full((4,), float(step + rank))
        dist.all_reduce(part)
        total += part
        if rank == 1 and step == 4:
            copy = write_aside(total.tolist())
    if copy:
        os.waitpid(copy, 0)
    dist.barrier()
    print(f"rank {rank}: {total[0].item():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 48.0
# ///
