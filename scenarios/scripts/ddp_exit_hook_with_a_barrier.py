"""Rank 1 has not improved for three rounds and ends by itself; its exit hook waits for all.

The hook was to let everybody finish their last files. Nobody else is at the end: the others are in
their next all_reduce.
"""

import atexit
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

PATIENCE = 3


def finish() -> None:
    """Leave together, so that the folder of the run is whole."""
    Path(f"rank{dist.get_rank()}.done").touch()
    dist.barrier()
    dist.destroy_process_group()


def evaluate(rank: int, turn: int) -> float:
    torch.manual_seed(turn)
    if rank == 1:
        return 0.5  # its part of the held-out data has one class
    return 1.0 / (turn + 1)


def main() -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    atexit.register(finish)
    weights = torch.zeros(128)
    best, waited = float("inf"), 0
    for turn in range(40):
        gradient = torch.randn(128)
        dist.all_reduce(gradient)
        weights -= 0.01 * gradient
        error = evaluate(rank, turn)
        best, waited = (error, 0) if error < best else (best, waited + 1)
        if waited == PATIENCE:
            print(f"rank {rank}: no better than {best} after turn {turn}", flush=True)
            sys.exit(0)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[1], [0, 1, 2], []]
# waiting = [0, 2]
# steps = [
#   "training", "steady", "first_all_reduce", "first_collective", "first_barrier", "barrier",
#   "process_group", "teardown",
# ]
# after = ["First all_reduce done", "Process group ready", ""]
# own_code = true
# calls = ['distributed\.\w+', 'finish', 'train\.main']
# causes = [
#   "uneven-rounds", "rank-conditional-collective", "collective-mismatch", "gloo-mismatch",
#   "barrier-at-exit",
# ]
# ///
