"""Rank 1 asks the store for an address that nobody ever puts there."""

import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=2))
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    if dist.get_rank() == 1:
        store = dist.distributed_c10d._get_default_store()
        print("evaluator at", store.get("evaluator/address"))
    for _ in range(3):
        model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[1]]
# waiting = [0]
# steps = ["training", "steady", "wrap", "ddp"]
# after = ["DDP ready"]
# own_code = true
# calls = ['store\.get|Store\.get|\.get$|train\.main']
# ///
