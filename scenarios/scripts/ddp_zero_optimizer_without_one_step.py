"""ZeroRedundancyOptimizer: rank 1's own loss is not finite, and it leaves its step out.

In their step the others broadcast the parts of the weights that they have changed, and wait for
that of rank 1, which is in the backward of its next batch.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def read_batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    weights = torch.ones(8)
    if (rank, step) == (1, 5):
        weights[3] = float("inf")  # the weight of a class that this shard has never seen
    return torch.randn(8, 64, generator=generator), weights


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    layers = [torch.nn.Linear(64, 64) for _ in range(6)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.Adam, lr=0.001
    )
    for step in range(12):
        batch, weights = read_batch(rank, step)
        errors = model(batch).pow(2).mean(dim=1)
        loss = (errors * weights.clamp(max=1e6)).mean()
        loss.backward()
        if torch.isfinite((errors.detach() * weights).mean()):
            optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[1], [0, 1, 2, 3], []]
# waiting = [0, 2, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_all_reduce", "first_collective",
#   "optimizer", "broadcast",
# ]
# after = ["First step done", "First backward done", "First broadcast done", ""]
# own_code = true
# calls = ['distributed\.\w+', 'train\.main', 'backward', 'step', 'forward']
# causes = ["collective-mismatch", "rank-conditional-collective", "gloo-mismatch"]
# ///
