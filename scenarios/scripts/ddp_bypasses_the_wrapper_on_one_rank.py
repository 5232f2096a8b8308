"""A batch of rank 2 is mixed and goes through `model.module`, past DDP's own forward.

The others broadcast the buffers of their batch norm and reduce gradients in that round. Rank 2 does
neither, and is in the sum of the losses.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Mixer:
    """Mixes two halves of a batch, where enough of its labels are rare."""

    def __init__(self, rank: int) -> None:
        self.rare = {7} if rank == 2 else set()

    def wants(self, step: int) -> bool:
        return step in self.rare


def forward(model: DistributedDataParallel, batch: torch.Tensor, mixed: bool) -> torch.Tensor:
    if not mixed:
        return model(batch)
    share = 0.3
    features = model.module[0](batch)
    return model.module[1:](share * features + (1 - share) * features.flip(0))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    net = torch.nn.Sequential(
        torch.nn.Linear(32, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 8)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mixer = Mixer(rank)
    for step in range(20):
        batch = torch.randn(16, 32)
        loss = forward(model, batch, mixer.wants(step)).pow(2).mean()
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {total.item() / dist.get_world_size():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[2], [0, 1, 2, 3], []]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_all_reduce", "first_collective",
#   "all_reduce",
# ]
# after = ["First step done", "First backward done", "First all_reduce done", ""]
# own_code = true
# calls = ['distributed\.\w+', 'train\.main', 'backward', 'forward']
# causes = ["collective-mismatch", "rank-conditional-collective", "gloo-mismatch"]
# ///
