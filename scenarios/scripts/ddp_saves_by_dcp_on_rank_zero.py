"""dcp.save by rank 0 alone, as one does with torch.save: it gathers the plans of all three. The
others are in the barrier behind.
"""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel


def save_checkpoint(model: torch.nn.Module, step: int) -> None:
    if dist.get_rank() == 0:
        dcp.save({"model": model.state_dict()}, checkpoint_id=f"step-{step}")
    dist.barrier()


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        if step == 5:
            save_checkpoint(model, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[0]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [1, 2]
# steps = [
#   "training", "steady", "checkpoint", "first_gather_object", "first_gather", "first_all_gather",
#   "first_all_gather_object", "first_broadcast", "barrier", "first_barrier",
# ]
# after = ["First step done", "First backward done", ""]
# own_code = true
# calls = ['save', 'distributed\.\w+']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# ///
