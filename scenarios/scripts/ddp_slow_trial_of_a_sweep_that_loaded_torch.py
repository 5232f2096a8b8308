"""Healthy and silent: a sweep that has loaded torch starts torchrun and waits; rank 1 of three
waits long for its data, the others for it.
"""

import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist


def train(seconds: float) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(6):
        if rank == 1 and step == 3:
            time.sleep(seconds)
        loss = torch.tensor([float(step)])
        dist.all_reduce(loss)
    print(rank, loss.item(), flush=True)
    dist.destroy_process_group()


def main() -> None:
    amount = sys.argv[1]
    if "RANK" in os.environ:
        train(float(amount))
        return
    own = {**os.environ, "OMP_NUM_THREADS": str(min(1, torch.get_num_threads()))}
    words = ["torchrun", "--standalone", "--nproc_per_node=3", sys.argv[0], amount]
    subprocess.run(words, env=own, check=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
