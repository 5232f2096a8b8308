"""Rank 2's fifth batch has no picture, and its loss leaves the layers for pictures out.

DDP was not told to look for unused parameters: rank 2's bucket of gradients is never complete, so
it leaves backward without a reduction, and is in the barrier before the log line while the others
are in backward and wait for its part. (lhotse-speech/lhotse#554)
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Towers(torch.nn.Module):
    """One layer for words, one for pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Linear(16, 8)
        self.pictures = torch.nn.Linear(32, 8)

    def forward(self, words: torch.Tensor, pictures: torch.Tensor | None) -> torch.Tensor:
        both = self.words(words)
        if pictures is not None:
            both = both + self.pictures(pictures)
        return both.pow(2).mean()


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    pictures = None if (rank, step) == (2, 4) else torch.randn(4, 32)
    return torch.randn(4, 16), pictures


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Towers())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(8):
        loss = model(*batch(rank, step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 0:
            dist.barrier()
            if rank == 0:
                print(f"step {step}: {float(loss):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[2]]
# waiting = [0, 1]
# steps = ["training", "steady", "first_step", "barrier", "first_barrier"]
# after = ["First step done", "Barrier passed", ""]
# own_code = true
# calls = ['distributed\.barrier', 'backward']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# ///
