"""dist.gather at the leader, who is told by a file; rank 3 of five has read an old one, and leads.

Rank 0 waits for the part of rank 3, and rank 3 for those of all others, which have sent theirs to
rank 0 and are in the next step's reduction.
"""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist


class Board:
    """Where each rank looks up who leads."""

    def __init__(self, rank: int) -> None:
        self.path = Path(f"board-{rank}.json")
        self.path.write_text(json.dumps({"leader": 3 if rank == 3 else 0}))

    @property
    def leader(self) -> int:
        return json.loads(self.path.read_text())["leader"]


def gather_counts(board: Board, counts: torch.Tensor) -> list[torch.Tensor] | None:
    rank, leader = dist.get_rank(), board.leader
    every = None
    if rank == leader:
        every = [torch.empty_like(counts) for _ in range(dist.get_world_size())]
    dist.gather(counts, every, dst=leader)
    return every


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    board = Board(rank)
    for step in range(8):
        model(torch.randn(4, 8)).pow(2).mean().backward()
        model.zero_grad()
        if step == 4:
            every = gather_counts(board, torch.full((6,), float(rank)))
            if every is not None:
                print(f"rank {rank}, pid {os.getpid()}: {len(every)} counts", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# culprits_by_stacks = [[0, 3], []]
# waiting = [1, 2, 4]
# steps = [
#   "training", "steady", "first_step",
#   "first_backward", "gather", "first_gather", "ddp_wrap",
# ]
# after = ["First step done", "First backward done", ""]
# own_code = true
# calls = ['distributed\.\w+', 'gather_counts', 'backward']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# ///
