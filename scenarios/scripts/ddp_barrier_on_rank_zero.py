"""Rank 0 calls a barrier after saving, and the others do not: it pairs with their next collective.

What is to be seen in the end is elsewhere: rank 0 one collective behind
(huggingface/transformers-bloom-inference PR 40).
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(model: torch.nn.Module, path: str) -> None:
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
        dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", default="model.pt")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    save(model, args.save)
    for _ in range(3):
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        seen = torch.tensor([4.0])
        dist.all_reduce(seen)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --save here.pt"
# culprits = [[0]]
# culprits_by_stacks = [[0, 1]]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "barrier",
#   "all_reduce", "first_barrier", "first_all_reduce",
# ]
# own_code = true
# calls = ['distributed\.(barrier|all_reduce)', "backward"]
# ///
