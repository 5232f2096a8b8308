"""FSDP: only the rank that saves, rank 1, asks for the full weights; all ranks must gather them.

The others go on to the barrier after the checkpoint.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType

SAVER = int(os.environ.get("SAVER_RANK", "1"))


def save(model: FullyShardedDataParallel, path: str) -> None:
    how = FullStateDictConfig(offload_to_cpu=True, rank0_only=False)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, how):
        torch.save(model.state_dict(), path)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    model = FullyShardedDataParallel(layers, device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 9):
        loss = model(torch.randn(16, 32)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 4 == 0:
            if rank == SAVER:
                save(model, f"step{step}.pt")
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "all_gather",
#   "all_gather_into_tensor", "barrier", "first_barrier", "first_all_gather",
#   "first_all_gather_into_tensor",
# ]
# after = ["First step done", ""]
# own_code = true
# calls = ['distributed\.\w+', "state_dict"]
# causes = ["rank-conditional-collective", "collective-mismatch", "gloo-mismatch"]
# ///
