"""Rank 0 alone makes a group for its evaluation: new_group wants every rank, members or not.

(pytorch/pytorch#25390, #134314)
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    if dist.get_rank() == 0:
        dist.new_group([0, 1])
    for _ in range(3):
        model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[0]]
# culprits_by_stacks = [[0, 1]]
# waiting = [1]
# steps = ["training", "process_group", "new_group"]
# own_code = true
# calls = ['distributed\.new_group']
# ///
