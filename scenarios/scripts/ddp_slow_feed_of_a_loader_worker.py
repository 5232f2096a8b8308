"""Healthy and slow: the DataLoader worker of rank 2 reads a named pipe with a line now and then.

Who writes it is a process beside the job, at the pace of a crawler that may ask only so often.
"""

import argparse
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()
CRAWLER = """
import sys, time
with open("pages", "w") as pages:
    for number in range(5):
        time.sleep(float(sys.argv[1]) / 5)
        print(number, file=pages, flush=True)
"""


class Pages(IterableDataset[torch.Tensor]):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __iter__(self):
        if self.rank != 2:
            yield from (torch.full((4,), float(n)) for n in range(5))
            return
        with open("pages") as pages:
            for line in pages:
                yield torch.full((4,), float(line))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model, crawler = DistributedDataParallel(torch.nn.Linear(4, 1)), None
    if rank == 2:
        os.mkfifo("pages")
        crawler = subprocess.Popen([sys.executable, "-c", CRAWLER, str(args.seconds)])
    for batch in DataLoader(Pages(rank), batch_size=1, num_workers=1):
        model(batch).pow(2).mean().backward()
        model.zero_grad()
    dist.barrier()
    print(f"rank {rank} is done", flush=True)
    if crawler is not None:
        crawler.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 300.0
# ///
