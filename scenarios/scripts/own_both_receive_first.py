"""Ranks 1 and 2 exchange halos, and both receive before they send.

Ranks 0 and 3 are in the barrier that follows.
"""

import os

import torch
import torch.distributed as dist


def exchange(mine: torch.Tensor, other: int) -> torch.Tensor:
    theirs = torch.empty_like(mine)
    dist.recv(theirs, src=other)
    dist.send(mine, dst=other)
    return theirs


def main() -> None:
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    if rank in (1, 2):
        exchange(torch.full((4,), float(rank)), 3 - rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[1, 2]]
# waiting = [0, 3]
# steps = ["process_group", "ddp_wrap", "first_collective", "first_recv"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['recv', 'exchange']
# causes = ["message-left-out", "deadlock"]
# ///
