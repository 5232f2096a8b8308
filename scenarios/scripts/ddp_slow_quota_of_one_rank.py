"""Healthy and slow: rank 2 of four is some ten seconds late in each step, for its quota of reads.

A thread of its own gives a read free now and then, and its main thread waits for that.
"""

import argparse
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()
STEPS = 6


class Quota:
    def __init__(self, pause: float) -> None:
        self.permits = threading.Semaphore(0)
        threading.Thread(target=self._give, args=(pause,), daemon=True).start()

    def _give(self, pause: float) -> None:
        while True:
            time.sleep(pause)
            self.permits.release()

    def take(self) -> None:
        self.permits.acquire()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    quota = Quota(args.seconds / STEPS if rank == 2 else 0.05)
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        quota.take()
        model(torch.randn(4, 16)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 66.0
# ///
