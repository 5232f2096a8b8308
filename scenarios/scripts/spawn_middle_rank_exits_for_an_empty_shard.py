"""mp.spawn: the shard of rank 2 of five is empty, and it leaves with sys.exit(0) before it joins;
the four others wait for it at the rendezvous.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 5
SHARDS = [[1, 2], [3], [], [4, 5], [6]]


def run_worker(rank: int) -> None:
    shard = SHARDS[rank]
    if not shard:
        print(f"rank {rank}: nothing to do", flush=True)
        sys.exit(0)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    total = torch.tensor([sum(shard)])
    dist.all_reduce(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = os.environ["PORT"]
    mp.spawn(run_worker, nprocs=WORLD)

# /// case
# command = "python train.py"
# culprits = [[2]]
# waiting = [0, 1, 3, 4]
# steps = ["script", "process_group", "training", "rendezvous", "arguments"]
# after = ["torch imported", ""]
# own_code = true
# ends = true
# calls = [".*"]
# causes = ["rank-left", "rank-died", "rank-never-started"]
# ///
