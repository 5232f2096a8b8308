"""Only rank 1 wraps a second model in DDP: its constructor talks to every rank
(pytorch/pytorch#68803).
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    teacher: torch.nn.Module = torch.nn.Linear(16, 1)
    if dist.get_rank() == 1:
        teacher = DistributedDataParallel(teacher)
    for _ in range(3):
        batch = torch.randn(4, 16)
        (model(batch) - teacher(batch)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1]]
# waiting = [0]
# steps = ["wrap", "training", "ddp"]
# own_code = true
# calls = ["DistributedDataParallel", "backward"]
# ///
