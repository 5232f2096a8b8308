"""Rank 2 waits for a datagram of nobody before new_group's first all_reduce; 0 is in it.

Ranks 1 and 3 are in the barrier of all.
"""

import os
import socket

import torch
import torch.distributed as dist


def licence() -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return one.recvfrom(64)[0]


def main() -> None:
    dist.init_process_group("gloo")
    even = dist.new_group([0, 2])
    rank = int(os.environ["RANK"])
    if rank == 2:
        licence()
    if rank % 2 == 0:
        dist.all_reduce(torch.ones(1), group=even)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "ddp_wrap", "first_collective"]
# after = ["New group ready", "Process group ready", ""]
# own_code = true
# calls = ['licence', 'recv']
# causes = ["nobody-sends"]
# ///
