"""Five ranks wait for a key with a time limit, again and again; rank 1 was to set it, and failed.

Its error is logged, and it goes on to the barrier behind; the others print that they still wait.
"""

import datetime
import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LOG = logging.getLogger("cache")


def build(path: str) -> None:
    with open(path) as file:
        file.read()


def wait_until_built(store: dist.Store, rank: int) -> None:
    if rank == 1:
        try:
            build("/data/corpus.txt")
        except OSError as error:
            LOG.error("cannot build: %s", error)
            return
        store.set("cache/built", "1")
    while True:
        try:
            store.wait(["cache/built"], datetime.timedelta(seconds=4))
            return
        except dist.DistStoreError:
            LOG.info("still waiting")


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    wait_until_built(dist.distributed_c10d._get_default_store(), rank)
    dist.barrier()
    for _ in range(5):
        model(torch.randn(4, 8)).pow(2).mean().backward()
        model.zero_grad()
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[]]
# waiting = [0, 2, 3, 4]
# steps = ["training", "steady", "barrier", "first_barrier", "wrap", "ddp", "ddp_wrap"]
# after = ["DDP ready", ""]
# own_code = true
# calls = ['barrier', 'train\.main']
# causes = ["store-key-missing", "rank-conditional-collective", "swallowed-exception", "unknown"]
# ///
