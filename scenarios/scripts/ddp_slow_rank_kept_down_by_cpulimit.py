"""Healthy and slow: rank 2 of four scores its texts, and is kept to a tenth of a processor.

A program does that as cpulimit does: it stops the rank, and lets it go on, again and again.
"""

import argparse
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

LIMITER = """
import os, signal, sys, time
pid = int(sys.argv[1])
try:
    while os.getppid() == pid:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.9)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)
finally:
    os.kill(pid, signal.SIGCONT)
"""


def score(text: str) -> float:
    counts: dict[str, int] = {}
    for start in range(len(text)):
        for end in range(start + 1, min(start + 12, len(text))):
            counts[text[start:end]] = counts.get(text[start:end], 0) + 1
    return sum(counts.values()) / len(counts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    total = torch.zeros(1)
    for step in range(3):
        dist.all_reduce(total)
        if step == 1 and rank == 2:
            limiter = subprocess.Popen([sys.executable, "-c", LIMITER, str(os.getpid())])
            until = time.monotonic() + args.seconds
            while time.monotonic() < until:
                total += score("the quick brown fox jumps over the lazy dog " * 40)
            limiter.terminate()
            limiter.wait()
        print(f"rank {rank} step {step}: {total.item():.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 300.0
# ///
