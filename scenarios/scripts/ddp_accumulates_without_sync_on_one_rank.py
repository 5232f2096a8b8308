"""Rank 2 of four skips the reduction of a step that it takes for one of accumulation.

It counts its own micro-batches, one of which was empty and was dropped: the others reduce their
gradients, and it goes on to the barrier at the end.
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

EVERY = 4


def micro_batches(rank: int) -> list[torch.Tensor]:
    made = [torch.randn(8, 16) for _ in range(24)]
    return [one for place, one in enumerate(made) if not (rank == 2 and place == 9)]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    for place, batch in enumerate(micro_batches(rank), 1):
        is_last = place % EVERY == 0
        with contextlib.nullcontext() if is_last else model.no_sync():
            model(batch).pow(2).mean().backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
            done += 1
    if len(micro_batches(rank)) % EVERY:
        optimizer.step()
    dist.barrier()
    print(f"{done} steps", flush=True)
    dist.destroy_process_group()


main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["barrier", "backward", "first_all_reduce", "training"]
# after = ["First step done", "First backward done"]
# own_code = true
# calls = ["barrier", "backward"]
# causes = ["collective-mismatch", "rank-conditional-collective", "uneven-batches", "uneven-rounds"]
# ///
