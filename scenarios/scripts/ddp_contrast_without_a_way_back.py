"""A contrastive loss sums over all ranks, forwards and backwards; rank 1 of four has no pair once.

Its loss is a constant then, its backward is empty, and it is a sum ahead: at the end it is in the
barrier, the others in the last sum of their backward.
"""

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_reduce


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(97 * rank + step)
    pairs = torch.ones(8, dtype=torch.bool)
    if (rank, step) == (1, 2):
        pairs[:] = False  # all captions of this batch were filtered out
    return torch.randn(8, 16, generator=generator), pairs


def contrast(features: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    total = all_reduce(features.exp().sum(0))
    if not pairs.any():
        return features.new_zeros(())
    return (total.log() - features[pairs].mean(0)).mean()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.Linear(16, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        features, pairs = batch(rank, step)
        loss = contrast(model(features), pairs)
        if loss.requires_grad:
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
# culprits = [[1]]
# culprits_by_stacks = [[]]
# waiting = [0, 2, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "barrier", "first_barrier", "all_reduce", "first_all_reduce",
# ]
# after = ["First step done", "First all_reduce done", "First backward done", ""]
# own_code = true
# calls = ['barrier', 'backward', 'all_reduce']
# causes = [
#   "rank-conditional-collective", "collective-mismatch", "gloo-mismatch", "uneven-batches",
#   "uneven-rounds",
# ]
# ///
