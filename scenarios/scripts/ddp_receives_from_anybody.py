"""Rank 0 gathers one message of each other rank, from anybody; rank 2 sends its own to rank 1.

Rank 1 has sent its own, and goes on to the barrier: what rank 2 sends to it nobody receives.
"""

import torch
import torch.distributed as dist


def chief_of(rank: int, world: int) -> int:
    """Return to whom a rank reports: in teams of four, if there are more than one."""
    return 0 if rank != world // 2 else rank - 1


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    report = torch.tensor([float(rank), 0.5])
    if rank == 0:
        found = {}
        for _ in range(world - 1):
            sender = dist.recv(report)
            found[sender] = report.tolist()
        print(f"{len(found)} reports", flush=True)
    else:
        dist.send(report, chief_of(rank, world))
    dist.barrier()
    dist.destroy_process_group()


main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[1, 2]]
# waiting = [0, 3, 4]
# steps = ["first_send", "send", "recv", "barrier", "point_to_point", "process_group", "training"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ["send", "recv", "barrier"]
# causes = ["nobody-sends", "message-left-out", "collective-mismatch", "unknown"]
# ///
