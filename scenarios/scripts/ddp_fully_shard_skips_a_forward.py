"""FSDP2: rank 1's batch has no label that counts, and it leaves out the forward of that batch.

The others gather the first layer's parameters from all; rank 1 reduces its statistics already.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

IGNORED = -100


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(0, 4, (8,))
    if rank == 1 and step == 2:
        labels[:] = IGNORED
    return torch.randn(8, 32), labels


def main() -> None:
    dist.init_process_group("gloo")
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
    layers = [torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)]
    model = torch.nn.Sequential(*layers)
    for layer in layers:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = torch.zeros(1)
    for step in range(6):
        inputs, labels = batch(rank, step)
        if (labels != IGNORED).any():
            loss = torch.nn.functional.cross_entropy(model(inputs), labels, ignore_index=IGNORED)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        seen += (labels != IGNORED).sum()
        dist.all_reduce(seen)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "first_backward", "first_step", "steady", "all_reduce", "first_all_reduce",
#   "first_all_gather_into_tensor", "first_all_gather_single", "first_reduce_scatter_single",
# ]
# after = ["First step done", "First all_reduce done", "First backward done", ""]
# own_code = true
# calls = ['distributed\.\w+', 'all_reduce', 'all_gather', 'fully_shard', 'train\.main']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# limit = 300
# ///
