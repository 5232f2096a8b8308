"""dcp.async_save: rank 2 has none of the two experts and takes no part; the others wait for the
future of their checkpoint before they begin the next.
"""

import datetime

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel

EXPERTS = 2


def main() -> None:
    dist.init_process_group("cpu:gloo", timeout=datetime.timedelta(hours=1))
    rank, world = dist.get_rank(), dist.get_world_size()
    savers = dist.new_group(backend="gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    saved = None
    for step in range(8):
        model(torch.randn(4, 64)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 4 != 1:
            continue
        if saved is not None:
            saved.result()
        experts = {f"expert.{n}": torch.randn(8, 8) for n in range(EXPERTS) if n % world == rank}
        if experts:
            saved = dcp.async_save(
                experts, checkpoint_id=f"checkpoints/{step}", process_group=savers
            )
    if saved is not None:
        saved.result()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[0, 1], [0, 1, 2]]
# waiting = [0, 1]
# steps = [
#   "training", "first_backward", "first_step", "steady", "barrier", "first_barrier",
#   "first_gather_object", "first_all_gather_object", "first_scatter_object_list",
# ]
# after = ["First step done", "First backward done", "New group ready", ""]
# own_code = true
# calls = ['distributed\.\w+', 'result', 'backward', 'async_save']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# limit = 300
# ///
