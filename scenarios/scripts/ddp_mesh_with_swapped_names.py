"""A device mesh of 2 by 3: rank 4 names its dimensions in the other order than all other ranks.

Rank 4 gathers activations in what is its data parallel group, with rank 1, which reduces its
gradients there; ranks 3 and 5 wait for rank 4 in the gather, and ranks 0 and 2 for them.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


def build_mesh(rank: int) -> DeviceMesh:
    names = ("dp", "tp")
    if os.environ.get("MESH_ORDER") == "legacy" or rank == 4:
        names = ("tp", "dp")
    return init_device_mesh("cpu", (2, 3), mesh_dim_names=names)


class Layer:
    def __init__(self, mesh: DeviceMesh) -> None:
        self.tp, self.dp = mesh["tp"].get_group(), mesh["dp"].get_group()
        self.part = torch.nn.Linear(12, 6)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        mine = self.part(inputs)
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(self.tp))]
        dist.all_gather(parts, mine.detach(), group=self.tp)
        parts[dist.get_rank(self.tp)] = mine
        return torch.cat(parts, dim=1)

    def reduce(self) -> None:
        for parameter in self.part.parameters():
            dist.all_reduce(parameter.grad, group=self.dp)


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    layer = Layer(build_mesh(dist.get_rank()))
    optimizer = torch.optim.SGD(layer.part.parameters(), lr=0.01)
    for step in range(5):
        loss = layer.forward(torch.randn(4, 12)).pow(2).mean()
        loss.backward()
        layer.reduce()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=6 train.py"
# culprits = [[4]]
# culprits_by_stacks = [[], [1, 4], [0, 1, 2, 3, 4, 5]]
# waiting = [0, 2, 3, 5]
# steps = [
#   "process_group", "training", "first_collective", "first_all_gather", "first_backward",
#   "ddp_wrap", "first_all_reduce",
# ]
# after = [
#   "Process group ready", "First all_gather done", "First backward done", "Device mesh ready",
#   "First init_device_mesh done", "New group ready", "",
# ]
# own_code = true
# calls = ['all_gather', 'all_reduce', 'Layer\.\w+']
# causes = ["collective-mismatch", "deadlock", "group-on-some-ranks", "rank-conditional-collective"]
# limit = 300
# ///
