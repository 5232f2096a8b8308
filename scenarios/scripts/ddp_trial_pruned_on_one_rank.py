"""A search over learning rates: rank 3 of four gives a trial up by its own loss, by an exception,
and builds the model of the next one.
"""

import dataclasses
import itertools
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Pruned(Exception):
    """Not worth going on with."""


@dataclasses.dataclass
class Trial:
    number: int
    rate: float


def trials() -> Iterator[Trial]:
    for number, rate in enumerate((0.1, 0.01, 0.001)):
        yield Trial(number, rate)


def objective(trial: Trial, rank: int) -> float:
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.rate)
    loss = torch.zeros(())
    for step in itertools.count():
        loss = model(torch.randn(8, 16)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 3 and trial.number == 1 and step == 4:  # its median is worse than before
            raise Pruned
        if step == 9:
            break
    return loss.item()


def main() -> None:
    dist.init_process_group("gloo")
    best = float("inf")
    for trial in trials():
        try:
            best = min(best, objective(trial, dist.get_rank()))
        except Pruned:
            continue
    print(best, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# environment = { OMP_NUM_THREADS = "1" }
# culprits = [[3]]
# waiting = [0, 1, 2]
# steps = [
#   "training", "first_backward", "first_step", "steady", "ddp", "ddp_model", "first_forward",
#   "model",
# ]
# after = ["First step done", "First backward done", "DDP ready", ""]
# own_code = true
# calls = ['DistributedDataParallel', 'backward', 'step']
# causes = [
#   "collective-mismatch", "rank-conditional-collective", "uneven-rounds", "ddp-on-some-ranks",
# ]
# ///
