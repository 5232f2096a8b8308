"""Rank 1 reaches an old helper with a plain barrier, where the others are in monitored_barrier."""

import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

PATIENCE = datetime.timedelta(hours=2)


def wait_for_all(step: int) -> None:
    dist.monitored_barrier(timeout=PATIENCE, wait_all_ranks=True)


def wait_for_all_as_before(step: int) -> None:
    dist.barrier()


def main() -> None:
    dist.init_process_group("gloo", timeout=PATIENCE)
    has_old_cache = dist.get_rank() == 1
    meet = wait_for_all_as_before if has_old_cache else wait_for_all
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    for step in range(6):
        model(torch.randn(4, 16)).sum().backward()
        if step == 3:
            meet(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "steady", "first_backward", "barrier", "first_barrier", "first_monitored_barrier",
# ]
# after = ["First backward done", ""]
# own_code = true
# calls = ['distributed\.(monitored_)?barrier', 'wait_for_all']
# causes = ["collective-mismatch", "rank-conditional-collective"]
# limit = 300
# ///
