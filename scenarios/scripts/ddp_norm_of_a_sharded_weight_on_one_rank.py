"""A weight lies in shards on the two ranks of a row of a mesh of two by two. A decorator looks at
the whole of it where the loss has jumped: rank 2 gathers it, and rank 3, which has the other half,
goes on.
"""

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

WIDTH = 32


def looks_at_its_weight(limit: float) -> Callable:
    """Print the norm of the weight after a step whose loss is above `limit`."""

    def around(step: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        @functools.wraps(step)
        def watched(self: "Row", number: int) -> torch.Tensor:
            loss = step(self, number)
            if loss.item() > limit:
                self.describe(number)
            return loss

        return watched

    return around


class Row:
    def __init__(self) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        self.rank = dist.get_rank()
        self.weight: DTensor = distribute_tensor(
            torch.randn(WIDTH, WIDTH), mesh["tensor"], [Shard(0)]
        )

    def whole(self) -> torch.Tensor:
        return self.weight.redistribute(placements=[Replicate()]).to_local()

    def describe(self, number: int) -> None:
        print(f"rank {self.rank} step {number}: |w| = {self.whole().norm():.2f}", flush=True)

    @looks_at_its_weight(limit=50.0)
    def step(self, number: int) -> torch.Tensor:
        jump = 100.0 if (self.rank, number) == (2, 5) else 1.0
        local = self.weight.to_local()
        return jump * torch.ones(WIDTH).mul(local.tanh()).pow(2).mean().clamp(0.6, 2.0)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    row = Row()
    row.describe(0)
    for number in range(1, 12):
        loss = row.step(number)
        dist.all_reduce(loss)
        print(f"rank {row.rank} step {number}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[], [2, 3]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_all_reduce", "all_reduce", "process_group",
#   "first_all_gather_into_tensor", "all_gather_into_tensor",
# ]
# after = ["First all_reduce done", "Process group ready", "New group ready", ""]
# own_code = true
# calls = ['redistribute', 'wait_tensor', 'all_gather', 'whole', 'describe', 'to_local']
# causes = ["rank-conditional-collective", "uneven-rounds", "collective-mismatch"]
# ///
