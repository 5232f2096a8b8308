"""Healthy and slow: rank 1 of three has its weights evaluated by a torchrun of two ranks.

The script starts itself once more for that; the inner ranks take their time, one after the other,
and rank 1 waits for the program. The others are in the broadcast of the score.
"""

import argparse
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
parser.add_argument("--evaluate", action="store_true")
args = parser.parse_args()
_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_", "GROUP_", "ROLE_")


def evaluate() -> None:
    dist.init_process_group("gloo")
    for turn in range(2):
        if dist.get_rank() == turn:
            time.sleep(args.seconds / 2)  # generates with a remote engine
        dist.barrier()
    if dist.get_rank() == 0:
        print(0.71, flush=True)
    dist.destroy_process_group()


def score() -> float:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words += [sys.argv[0], "--evaluate", "--seconds", str(args.seconds)]
    rest = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHER)}
    done = subprocess.run(words, env=rest, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = torch.tensor([score() if rank == 1 else 0.0])
    dist.broadcast(found, src=1)
    print(f"rank {rank}: {found.item():.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    evaluate() if args.evaluate else main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 50.0
# ///
