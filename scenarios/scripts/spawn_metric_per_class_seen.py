"""mp.spawn: the accuracy of each class is reduced, of those classes that a rank has seen.

Rank 2's part of the validation has none of the last class: it is in the barrier after the
metrics while the others reduce that class.
"""

import argparse
from collections import defaultdict

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

CLASSES = 6
PARTS = [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 4], [0, 1, 2, 3, 4, 5]]


def validate(model: torch.nn.Module, labels: list[int]) -> dict[int, list[float]]:
    right: dict[int, list[float]] = defaultdict(list)
    with torch.no_grad():
        for label in labels:
            right[label].append(float(model(torch.randn(1, 16)).argmax() == label))
    return right


def accuracy_per_class(right: dict[int, list[float]]) -> dict[int, float]:
    mean = {}
    for label in sorted(right):
        both = torch.tensor([sum(right[label]), float(len(right[label]))])
        dist.all_reduce(both)
        mean[label] = float(both[0] / both[1])
    return mean


def train(rank: int, world: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    model = DistributedDataParallel(torch.nn.Linear(16, CLASSES))
    for epoch in range(3):
        for _ in range(4):
            model(torch.randn(8, 16)).pow(2).mean().backward()
        mean = accuracy_per_class(validate(model.module, PARTS[rank]))
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: {mean}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    mp.spawn(train, args=(4, args.port), nprocs=4)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["training", "steady", "first_backward", "barrier", "first_barrier", "first_all_reduce"]
# after = ["First all_reduce done", "First backward done", ""]
# own_code = true
# calls = ['distributed\.(barrier|all_reduce)', 'accuracy_per_class']
# causes = ["uneven-rounds", "rank-conditional-collective", "collective-mismatch"]
# ///
