"""Tensor parallel on a mesh of 2 by 2: rank 2 alone finds its third batch too long, and skips it.

Both ranks of a tensor parallel pair should have had the same batch; each has shuffled for itself.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

LONGEST = 48


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(16, 64)
        self.down = torch.nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(torch.relu(self.up(x)))
        return out


def lengths(rank: int) -> list[int]:
    return [12, 20, 64, 30, 8, 16] if rank == 2 else [12, 20, 30, 16, 8, 24]


def main() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    block = parallelize_module(
        Block(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
    )
    optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
    for length in lengths(dist.get_rank()):
        if length > LONGEST:
            continue
        block(torch.randn(LONGEST, 16)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() in (0, 2):
        print(f"data parallel group {mesh.get_local_rank('dp')} is done", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[], [2, 3], [0, 1, 2, 3]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "first_backward", "first_step", "steady", "teardown", "barrier", "first_barrier",
#   "first_all_reduce",
# ]
# after = ["First step done", "First backward done", ""]
# own_code = true
# calls = ['distributed\.\w+', 'barrier', 'wait_tensor', 'backward']
# causes = ["uneven-rounds", "uneven-batches", "rank-conditional-collective"]
# limit = 300
# ///
