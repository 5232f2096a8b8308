"""A breakpoint that was left in, on rank 1 (pytorch/torchtitan#652)."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    for step in range(3):
        loss = model(torch.randn(4, 16)).sum()
        if step == 0 and dist.get_rank() == 1:
            breakpoint()
        loss.backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# world = "terminal"
# culprits = [[1]]
# waiting = [0]
# steps = ["training", "first_batch", "first_backward", "first_step", "steady"]
# after = ["DDP ready"]
# own_code = true
# calls = ["pdb", "bdb", "cmd", "breakpoint", "input", "read", 'train\.main']
# ///
