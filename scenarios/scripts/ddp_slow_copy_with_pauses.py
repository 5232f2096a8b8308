"""Healthy and slow: rank 2 of four has its data copied by a program that pauses between blocks.

The copy is held down to a block each few seconds, as a shared disk's owner asks; the others wait in
the barrier that comes before they read.
"""

import argparse
import subprocess
import sys

import torch
import torch.distributed as dist

COPY = """
import sys, time
with open(sys.argv[1], "rb") as source, open(sys.argv[2], "wb") as target:
    while block := source.read(1 << 20):
        target.write(block)
        target.flush()
        time.sleep(float(sys.argv[3]))
"""
BLOCKS = 12


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 2:
        with open("shared.bin", "wb") as file:
            file.write(bytes(BLOCKS << 20))
        pause = str(args.seconds / BLOCKS)
        subprocess.run([sys.executable, "-c", COPY, "shared.bin", "local.bin", pause], check=True)
    dist.barrier()
    total = torch.tensor(float(rank))
    dist.all_reduce(total)
    print(f"rank {rank}: {total.item():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# ///
