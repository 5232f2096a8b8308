"""A meter meets all ranks and sums itself over them when it becomes text, and a line of the log has
it as an argument; rank 2 of four alone logs at level DEBUG.
"""

import logging
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("train")


class Meter:
    """A mean over all ranks."""

    def __init__(self, name: str) -> None:
        self.name, self.total, self.count = name, 0.0, 0

    def update(self, value: float) -> None:
        self.total, self.count = self.total + value, self.count + 1

    def __str__(self) -> str:
        both = torch.tensor([self.total, float(self.count)], dtype=torch.float64)
        dist.barrier()
        dist.all_reduce(both)
        return f"{self.name} {float(both[0] / both[1]):.4f}"


def main() -> None:
    rank = int(os.environ["RANK"])
    level = logging.DEBUG if os.environ.get("DEBUG_RANK") == str(rank) else logging.INFO
    logging.basicConfig(level=level, format=f"rank {rank} %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss_of, norm_of = Meter("loss"), Meter("norm")
    for step in range(12):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 16)).pow(2).mean()
        loss.backward()
        optimizer.step()
        loss_of.update(loss.item())
        norm_of.update(model.module.weight.norm().item())
        if step % 5 == 4:
            log.info("step %d: %s", step, loss_of)
            log.debug("step %d: %s", step, norm_of)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# environment = { DEBUG_RANK = "2" }
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 2, 3], []]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_step", "ddp", "process_group", "first_all_reduce", "all_reduce",
#   "first_backward", "first_barrier", "barrier",
# ]
# after = ["First all_reduce done", "First step done", "Barrier passed", "First barrier done", ""]
# own_code = true
# calls = ['distributed\.\w+', '__str__', 'debug', 'backward', 'main']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# ///
