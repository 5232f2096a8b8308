"""Tensor parallel with activation checkpoints: rank 2 of four has memory enough, and keeps them.

A block sums over all ranks; who recomputes it in backward sums again. Rank 2 is ahead by these.
"""

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_reduce
from torch.utils.checkpoint import checkpoint

MEMORY = {2: 80}  # GB; all others have 40


class Block(torch.nn.Module):
    """A row of a layer that is split over all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.nn.Linear(48, 48)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return torch.tanh(all_reduce(self.part(data)))


class Model(torch.nn.Module):
    def __init__(self, recompute: bool) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
        self.recompute = recompute

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            data = checkpoint(block, data, use_reentrant=False) if self.recompute else block(data)
        return data.pow(2).mean()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = Model(recompute=MEMORY.get(rank, 40) < 60)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        loss = model(torch.randn(8, 48))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 2, 3]]
# waiting = [0, 1, 3]
# steps = [
#   "process_group", "training", "steady", "first_backward", "first_batch", "first_step",
#   "first_all_reduce", "all_reduce", "barrier", "first_barrier",
# ]
# after = [
#   "Process group ready", "First backward done", "First all_reduce done", "First step done", "",
# ]
# own_code = true
# calls = ['distributed\.\w+', 'all_reduce', 'forward', 'backward', 'train\.main']
# causes = [
#   "rank-conditional-collective", "collective-mismatch", "uneven-rounds", "gloo-mismatch",
# ]
# ///
