"""Healthy and slow: rank 2 alone compiles its teacher; the others wait for its first logits."""

import argparse
import datetime
from itertools import pairwise

import torch
import torch.distributed as dist


class Teacher(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        sizes = [24 + number for number in range(layers + 1)]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = torch.softmax(layer(x).cumsum(-1) / (number + 1), -1) * torch.sin(layer.bias)
        return x


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=20))
    rank = dist.get_rank()
    torch.manual_seed(0)
    width = 24 + args.layers
    student = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(24, width))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    teacher = torch.compile(Teacher(args.layers)) if rank == 2 else None
    for _ in range(5):
        rows = torch.randn(16, 24)
        logits = torch.empty(16, width)
        if teacher is not None:
            with torch.no_grad():
                logits = teacher(rows)
        dist.broadcast(logits, src=2)
        (student(rows) - logits).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --layers $AMOUNT"
# environment = { TORCHINDUCTOR_CACHE_DIR = "inductor" }
# outcome = "ok"
# amount = 3
# limit = 400.0
# ///
