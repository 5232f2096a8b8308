"""DTensor: rank 2 of four has a head of its own, not tied to the embedding, and distributes its
weight over the mesh as well; the others go on to their first step.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


def build(tied: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    weights = {"embedding": torch.randn(64, 16), "norm": torch.ones(16)}
    if not tied:
        weights["head"] = torch.randn(64, 16)
    return weights


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (4,))
    tied = os.environ.get("UNTIED_RANK") != str(rank)
    placed: dict[str, DTensor] = {}
    for name, weight in build(tied).items():
        placement = Replicate() if weight.dim() == 1 else Shard(0)
        placed[name] = distribute_tensor(weight, mesh, [placement])
    head = placed.get("head", placed["embedding"])
    for step in range(6):
        logits = torch.randn(8, 16) @ head.to_local().T
        loss = logits.pow(2).mean()
        dist.all_reduce(loss)
        print(f"rank {rank} step {step} loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# environment = { UNTIED_RANK = "2" }
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "process_group", "first_scatter", "scatter", "first_all_reduce", "all_reduce",
#   "first_broadcast", "broadcast", "first_collective",
# ]
# after = ["Process group ready", "First scatter done", "First broadcast done", ""]
# own_code = true
# calls = ['distribute_tensor', 'distributed\.\w+', 'scatter', 'broadcast', 'main']
# causes = ["rank-conditional-collective", "collective-mismatch", "uneven-rounds"]
# ///
