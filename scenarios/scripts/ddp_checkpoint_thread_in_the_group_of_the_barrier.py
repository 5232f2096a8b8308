"""dcp.async_save and the barrier behind it share one group: the plan of rank 1 of three takes long,
so its barrier comes first, and on the others the thread's first gather.
"""

import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner


class Planner(DefaultSavePlanner):
    """Looks through all shards for what is stored twice."""

    def create_local_plan(self):
        if dist.get_rank() == 1:
            time.sleep(4)
        return super().create_local_plan()


class Checkpoints:
    def __init__(self, folder: str) -> None:
        self.folder, self.pending = folder, None

    def save(self, step: int, state: dict[str, torch.Tensor]) -> None:
        if self.pending is not None:
            self.pending.result()
        place = f"{self.folder}/{step}"
        self.pending = dcp.async_save(state, checkpoint_id=place, planner=Planner())
        time.sleep(1.5)  # writes its own notes beside it
        dist.barrier()  # all have their notes written


def main() -> None:
    dist.init_process_group("cpu:gloo")
    checkpoints = Checkpoints("checkpoints")
    weights = torch.zeros(64)
    for step in range(20):
        dist.all_reduce(weights)
        if step % 10 == 9:
            checkpoints.save(step, {f"part.{dist.get_rank()}": weights})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1], [0, 1, 2]]
# culprits_by_stacks = [[0, 2], []]
# steps = [
#   "training", "collectives", "first_all_reduce", "first_barrier", "barrier", "script",
#   "first_gather_object", "first_scatter_object_list", "first_async_save", "first_reduce",
# ]
# after = ["First all_reduce done", "First async_save done", ""]
# own_code = true
# calls = [
#   'barrier', 'async_save', 'gather_object', 'all_reduce', 'scatter_object_list', 'broadcast',
# ]
# causes = ["collective-mismatch", "rank-conditional-collective", "collectives-in-two-threads"]
# ///
