"""new_group(use_local_synchronization=True): rank 2 of four makes a group of itself alone first,
and the name of a group is made of how many there are (pytorch/pytorch#173608).

Rank 3 looks for the group of 2 and 3 under one name, and rank 2 under another.
"""

import os

import torch
import torch.distributed as dist


def private_group(rank: int) -> dist.ProcessGroup | None:
    """Return a group for the metrics of a rank that shares its tower with nobody."""
    shares = {0: [0, 1], 1: [0, 1], 2: [2], 3: []}[rank]
    if len(shares) == 1:
        return dist.new_group(shares, use_local_synchronization=True)
    return None


def pair(rank: int) -> dist.ProcessGroup:
    first = rank - rank % 2
    return dist.new_group([first, first + 1], use_local_synchronization=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    metrics = private_group(rank)
    neighbours = pair(rank)
    weight = torch.randn(32, 32)
    for step in range(10):
        half = weight.clone()
        dist.all_reduce(half, group=neighbours)
        dist.all_reduce(half)
        weight = half / (2 * dist.get_world_size())
        if metrics is not None:
            dist.all_reduce(weight.norm(), group=metrics)
        print(f"rank {rank} step {step} ({os.getpid()})", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[2, 3], [3], []]
# waiting = [0, 1]
# steps = ["new_group", "first_new_group", "process_group", "training"]
# after = ["Process group ready", "New group ready", ""]
# calls = ['new_group', 'pair']
# causes = ["group-on-some-ranks", "rank-conditional-collective", "collective-mismatch", "unknown"]
# ///
