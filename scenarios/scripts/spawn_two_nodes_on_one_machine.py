"""A script stands for a node and spawns two workers; a shell starts it twice, as node 0 and node 1
of one job on one machine. The second worker of node 1 waits for annotations that nobody writes,
while the others train.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

WORKERS = 2


def read_annotations(number: int) -> list[str]:
    while number == 3 and not os.path.exists("annotations.txt"):
        time.sleep(1.0)
    return []


def train_worker(worker: int, workers: int, given: argparse.Namespace) -> None:
    given.rank = given.rank * workers + worker
    dist.init_process_group(
        "gloo",
        init_method=given.dist_url,
        world_size=given.world_size * workers,
        rank=given.rank,
    )
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    read_annotations(given.rank)
    for _ in range(20):
        model(torch.randn(4, 8)).sum().backward()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int)
    parser.add_argument("--world-size", type=int)
    parser.add_argument("--dist-url")
    given = parser.parse_args()
    mp.spawn(train_worker, nprocs=WORKERS, args=(WORKERS, given))


if __name__ == "__main__":
    main()

# /// case
# command = "bash start.sh"
# culprits = [[3]]
# waiting = [0, 1, 2]
# steps = ["script"]
# after = ["DDP ready"]
# own_code = true
# calls = ["time.sleep"]
# causes = ["polling-loop"]
# [files]
# "start.sh" = '''
# url=tcp://127.0.0.1:29874
# python -u train.py --rank 0 --world-size 2 --dist-url $url &
# python -u train.py --rank 1 --world-size 2 --dist-url $url &
# wait
# '''
# ///
