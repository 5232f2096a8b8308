"""Ranks 1, 2 and 3 have the experts, and rank 2 waits for the routing table from the wrong one.

Within their group the table comes from its first rank, 1; rank 2 takes the number within the group
for the number within the world, and waits for rank 3, which has what rank 1 sent it and is in the
barrier, as is rank 0, which has no expert. Rank 1 waits until rank 2 takes what it sends.
"""

import torch
import torch.distributed as dist

EXPERTS = [1, 2, 3]


def source(rank: int) -> int:
    """Whoever has the table of the routes."""
    first = 0
    if rank == EXPERTS[1]:  # reads it from an older configuration
        return EXPERTS[first - 1]
    return EXPERTS[first]


def routes(group: dist.ProcessGroup, rank: int) -> torch.Tensor:
    table = torch.arange(32) if rank == EXPERTS[0] else torch.empty(32, dtype=torch.int64)
    dist.broadcast(table, src=source(rank), group=group)
    return table


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    experts = dist.new_group(EXPERTS)
    layer = torch.nn.Linear(16, 16)
    for step in range(4):
        if rank in EXPERTS:
            table = routes(experts, rank)
            layer(torch.randn(int(table.numel()), 16)).sum().backward()
        dist.barrier()
        if rank == 0:
            print(f"step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[1, 2]]
# waiting = [0, 3]
# steps = ["process_group", "ddp_wrap", "first_collective", "first_broadcast", "training"]
# after = ["New group ready", "Process group ready", ""]
# own_code = true
# calls = ['distributed\.broadcast', 'routes']
# causes = ["collective-mismatch", "rank-conditional-collective"]
# ///
