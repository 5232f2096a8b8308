"""Rank 0 sums a statistic, rank 1 broadcasts it: two kinds of collectives that never meet.

The branch was meant for the reading of the statistics, and took in the wrong line
(dylanyunlon/Neuron_SP PR 80).
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def statistics(rank: int) -> torch.Tensor:
    mean = torch.ones(100_000)
    if rank == 0:
        dist.all_reduce(mean)
    else:
        dist.broadcast(mean, src=1)
    dist.barrier()
    return mean


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    mean = statistics(dist.get_rank())
    model(torch.randn(4, 16) - mean[0]).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[0, 1]]
# steps = [
#   "training", "steady", "wrap", "all_reduce", "broadcast", "ddp", "first_all_reduce",
#   "first_broadcast",
# ]
# own_code = true
# calls = ['distributed\.(all_reduce|broadcast|barrier)']
# ///
