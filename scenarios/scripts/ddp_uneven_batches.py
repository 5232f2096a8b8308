"""Rank 1 has a batch less than rank 0, and is in the barrier after the loop when rank 0 reduces.

(huggingface/accelerate#221)
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(torch.randn(12 - 4 * rank, 256), batch_size=4):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[1]]
# waiting = [0]
# culprits_by_stacks = [[0, 1]]
# steps = [
#   "training", "steady", "first_step", "first_batch", "teardown", "barrier", "first_barrier",
# ]
# own_code = true
# calls = ['distributed\.barrier', "backward"]
# ///
