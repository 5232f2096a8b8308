"""Each rank makes the group of its experts by itself; rank 2 leaves rank 3 out of it.

new_group(use_local_synchronization=True) asks nobody who is not in the list. Ranks 1 and 3 wait for
rank 2 in a group of three, rank 2 for rank 1 in one of two. Rank 0 is in a barrier.
"""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist

PLACED = {"router": [0], "experts": [1, 2, 3]}


def read_placement(rank: int) -> dict[str, list[int]]:
    """Return which ranks have what, as the file says that lies beside each rank."""
    file = Path(f"placement-{rank}.json")
    placed = dict(PLACED)
    if rank == 2:
        placed["experts"] = [1, 2]  # of before the job was made larger
    file.write_text(json.dumps(placed))
    return json.loads(file.read_text())


def join_group(rank: int) -> dist.ProcessGroup | None:
    members = next(ranks for ranks in read_placement(rank).values() if rank in ranks)
    if len(members) == 1:
        return None
    return dist.new_group(members, use_local_synchronization=True)


def main() -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    group = join_group(rank)
    dist.barrier()
    for _ in range(5):
        tokens = torch.randn(16, 8)
        if group is not None:
            dist.all_reduce(tokens, group=group)
        dist.all_reduce(tokens)
    print(f"rank {rank} is through", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "training", "first_new_group", "new_group", "first_barrier", "barrier"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['new_group', 'join_group', 'train\.main']
# ///
