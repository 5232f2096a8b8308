"""An optimizer of the user's own estimates its step from a sum over all ranks, and returns early
where no parameter has a gradient: rank 2 of four has only frozen ones in its shard.
"""

import torch
import torch.distributed as dist
from torch import nn


class Estimating(torch.optim.Optimizer):
    def __init__(self, parameters) -> None:
        super().__init__(parameters, {"rate": 0.1})
        self.distance = 1.0

    @torch.no_grad()
    def step(self, closure=None):
        moved = torch.zeros(2)
        for group in self.param_groups:
            for one in (p for p in group["params"] if p.grad is not None):
                moved[0] += one.grad.norm()
                moved[1] += one.numel()
        if not moved[1]:
            return
        dist.all_reduce(moved)
        self.distance = float(moved[0] / moved[1])
        for group in self.param_groups:
            for one in (p for p in group["params"] if p.grad is not None):
                one -= group["rate"] * self.distance * one.grad


def build() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    model[2].requires_grad_(False)
    return model


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = build()
    optimizer = Estimating(model[rank].parameters())
    for epoch in range(3):
        for batch in torch.randn(4, 8, 8).unbind():
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
        seen = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(seen, loss.detach().reshape(1))
        if rank == 0:
            print(epoch, [float(one) for one in seen], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# environment = { OMP_NUM_THREADS = "1" }
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 3]]
# steps = [
#   "training", "collectives", "first_all_reduce", "first_all_gather", "first_step", "steady",
#   "first_backward", "script",
# ]
# after = ["First step done", "First backward done", ""]
# own_code = true
# calls = ['all_reduce', 'all_gather', 'step']
# causes = ["collective-mismatch", "rank-conditional-collective", "uneven-rounds"]
# ///
