"""Healthy and silent: rank 0 reduces its losses in a branch of its own, with a line for the log,
the others in theirs; rank 2 waits long for its next part of the data.
"""

import argparse
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def batches(rank: int):
    for number in range(12):
        if rank == 2 and number == 8:
            time.sleep(args.seconds)
        yield torch.full((4,), float(number))


def logged(loss: torch.Tensor) -> None:
    dist.reduce(loss, dst=0)
    print(f"loss {loss.sum().item():.1f}", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for number, batch in enumerate(batches(rank)):
        if rank == 0:
            dist.all_reduce(batch)
            logged(batch.clone())
        else:
            if number % 3 == 0:
                time.sleep(0.01)
            dist.all_reduce(batch)
            dist.reduce(batch.clone(), dst=0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
