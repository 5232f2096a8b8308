"""Local SGD: the averager of rank 1 of three counts on from its checkpoint, those of the others
from nothing, so it averages once less and is in the barrier while they average.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager


def make_averager(rank: int) -> PeriodicModelAverager:
    averager = PeriodicModelAverager(period=4, warmup_steps=0)
    if os.path.exists(f"averager-{rank}.txt"):
        with open(f"averager-{rank}.txt") as file:
            averager.step = int(file.read())
    return averager


def main() -> None:
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    averager = make_averager(dist.get_rank())
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).pow(2).sum().backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
    dist.barrier()
    print(dist.get_rank(), "has trained", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_all_reduce", "barrier",
#   "first_barrier", "collectives",
# ]
# after = ["First step done", "First backward done", "First all_reduce done", ""]
# own_code = true
# calls = ['distributed\.\w+', 'average_parameters']
# causes = [
#   "rank-conditional-collective", "collective-mismatch", "uneven-rounds", "uneven-batches",
#   "peer-out-of-batches",
# ]
# [files]
# "averager-1.txt" = "2"
# ///
