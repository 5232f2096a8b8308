"""FSDP2: rank 2 writes the log, and looks alone at the largest weights, which are sharded.

A parameter is a DTensor of which each rank has a part; full_tensor() gathers the parts of all.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

LOG_RANK = int(os.environ.get("LOG_RANK", "2"))
LOG_FREQ = 3


class Block(torch.nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(dim)
        self.up, self.down = torch.nn.Linear(dim, 2 * dim), torch.nn.Linear(2 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return out


class Metrics:
    """Writes what a step was like, on one rank."""

    def __init__(self, rank: int) -> None:
        self.active = rank == LOG_RANK

    def log(self, step: int, loss: torch.Tensor, model: torch.nn.Module) -> None:
        if not self.active or step % LOG_FREQ:
            return
        largest = {
            name: parameter.detach().full_tensor().abs().max().item()
            for name, parameter in model.named_parameters()
            if name.endswith("weight")
        }
        print(f"step {step} loss {loss.item():.4f} largest {max(largest.values())}", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("shard",))
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[Block(32) for _ in range(3)])
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    metrics = Metrics(dist.get_rank())
    for step in range(1, 11):
        loss = model(torch.randn(4, 32)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        metrics.log(step, loss.detach(), model)
        mean = loss.detach().clone()
        dist.all_reduce(mean)
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
#   "training", "first_backward", "first_step", "steady", "first_all_reduce",
#   "first_all_gather_into_tensor", "first_all_gather_single", "first_reduce_scatter_single",
# ]
# after = ["First step done", "First backward done", "First all_reduce done", ""]
# own_code = true
# calls = ['full_tensor', 'distributed\.\w+', 'wait_tensor', 'Metrics\.log']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# limit = 300
# ///
