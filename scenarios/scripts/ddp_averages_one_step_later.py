"""Local SGD: weights are averaged every fourth step; rank 3 left a batch out, and counts one less.

The last average comes with the last batch. Rank 3's averager has not counted so far, so it is
through with its epoch and in the barrier behind it.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager


def count_tokens(rank: int, step: int) -> int:
    return 0 if (rank, step) == (3, 9) else 128  # a document that the filter emptied


def train(rank: int) -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Linear(48, 48), torch.nn.Linear(48, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    averager = PeriodicModelAverager(period=4)
    for step in range(21):
        if count_tokens(rank, step) == 0:
            continue
        model(torch.randn(8, 48)).pow(2).mean().backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
        optimizer.zero_grad()
    return model


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)
    model = train(rank)
    dist.barrier()
    if rank == 0:
        torch.save(model.state_dict(), "averaged.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# culprits_by_stacks = [[3], [0, 1, 2, 3, 4], []]
# waiting = [0, 1, 2, 4]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_all_reduce", "first_collective",
#   "first_barrier", "barrier",
# ]
# after = ["First step done", "First backward done", "First all_reduce done", ""]
# own_code = true
# calls = ['distributed\.\w+', 'train\.main', 'train\.train', 'average']
# causes = [
#   "uneven-rounds", "uneven-batches", "collective-mismatch", "rank-conditional-collective",
#   "gloo-mismatch",
# ]
# ///
