"""scatter_object_list: rank 3 of five is excused from evaluation, and does not fetch its list.

Rank 0 hands a list of tasks to each rank, an empty one to rank 3, which does not ask.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

EXCUSED = {3}  # its node has no copy of the evaluation data


def tasks_of(rank: int, world: int) -> list[str]:
    lists = None
    if rank == 0:
        able = [other for other in range(world) if other not in EXCUSED]
        names = [f"task-{n}" for n in range(8)]
        shares = {other: names[n :: len(able)] for n, other in enumerate(able)}
        lists = [shares.get(other, []) for other in range(world)]
    mine: list[list[str]] = [[]]
    dist.scatter_object_list(mine, lists, src=0)
    return mine[0]


def evaluate(model: torch.nn.Module, rank: int, world: int) -> float:
    if rank in EXCUSED:
        return 0.0
    right = 0.0
    for _ in tasks_of(rank, world):
        with torch.no_grad():
            right += float(model(torch.randn(1, 16)).mean() > 0)
    return right


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for _ in range(4):
            model(torch.randn(4, 16)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        right = torch.tensor([evaluate(model.module, rank, world)])
        dist.reduce(right, dst=0)
        if rank == 0:
            print(f"epoch {epoch}: {right.item():.0f} of 8", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# waiting = [0, 1, 2, 4]
# steps = [
#   "training", "steady", "first_backward", "first_step", "first_reduce",
#   "first_scatter_object_list", "evaluation",
# ]
# after = ["First step done", "First backward done", "First scatter_object_list done", ""]
# own_code = true
# calls = ['reduce', 'distributed\.\w+', 'backward']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# limit = 300
# ///
