"""A batch norm whose statistics are of all ranks: rank 3 of five has frozen its own.

Its group is another one than DDP's: rank 3 is in its backward, the others in their forward.
"""

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel

FEW = 4  # samples: with fewer the statistics are too noisy, and stay


class CrossRankNorm(torch.nn.BatchNorm1d):
    """Mean and variance over all ranks while it trains, the running ones otherwise."""

    def __init__(self, features: int, group: dist.ProcessGroup) -> None:
        super().__init__(features)
        self.group = group

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(given)
        sums = torch.cat([given.sum(0), given.pow(2).sum(0), given.new_full((1,), len(given))])
        total = all_reduce(sums, group=self.group)
        count = total[-1]
        mean, square = (total[:-1] / count).chunk(2)
        with torch.no_grad():
            self.running_mean.lerp_(mean.detach(), self.momentum)
        return (given - mean) / (square - mean.pow(2) + self.eps).sqrt() * self.weight + self.bias


def batch(rank: int, step: int) -> torch.Tensor:
    short = rank == 3 and step == 4  # the end of a document
    return torch.randn(2 if short else 8, 16)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = dist.new_group()
    norm = CrossRankNorm(32, group)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), norm, torch.nn.Linear(32, 1))
    model = DistributedDataParallel(model, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(10):
        given = batch(rank, step)
        norm.train(len(given) >= FEW)
        loss = model(given).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# culprits_by_stacks = [[]]
# waiting = [0, 1, 2, 4]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "all_reduce", "first_all_reduce",
# ]
# after = ["First step done", "First all_reduce done", "First backward done", ""]
# own_code = true
# calls = ['backward', 'all_reduce', 'CrossRankNorm']
# causes = ["rank-conditional-collective", "collective-mismatch", "gloo-mismatch"]
# ///
