"""Rank 1's loss is not finite, and it returns before the all_reduce that the others are in.

It goes on to the broadcast of the next step.
"""

import os

import torch
import torch.distributed as dist


def mean_over_ranks(loss: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(loss):
        return loss
    dist.all_reduce(loss)
    return loss / dist.get_world_size()


def train_step(rank: int, step: int) -> None:
    loss = torch.tensor(1.0 / (rank - 1) if rank != 1 else float("inf"))
    mean_over_ranks(loss if step else torch.ones(()))
    dist.broadcast(torch.zeros(3), src=0)


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(3):
        train_step(int(os.environ["RANK"]), step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["process_group", "ddp_wrap", "first_collective", "training", "steady"]
# after = ["First broadcast done", "First all_reduce done", ""]
# own_code = true
# calls = ['broadcast', 'all_reduce', 'train_step']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# ///
