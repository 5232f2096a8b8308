"""Data-parallel evaluation rounds; one machine is far slower than the others at its part."""

import os
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def search(seconds):
    """Simulate games for so long; each game is Python alone."""
    end, games = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        board = list(range(9))
        for turn in range(2000):
            board[turn % 9] = (board[turn % 9] * 31 + turn) % 97
        games += 1
    return games


def main():
    dist.init_process_group("gloo")
    seconds = float(os.environ.get("SEARCH_SECONDS", "0.3"))
    for _ in range(5):
        played = torch.tensor(float(search(seconds)))
        dist.all_reduce(played)
    dist.barrier()
    dist.destroy_process_group()


main()
