"""Healthy and slow: three ranks begin a step only when their timer rings (setitimer), so that a
host stays below its share of power; until then each waits for that signal and for nothing else.
"""

import argparse
import os
import signal

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 3
STEPS = 3


class Metronome:
    """Lets one step begin at each ring of the timer."""

    def __init__(self, seconds: float) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)

    def __iter__(self):
        for step in range(STEPS):
            signal.sigwait({signal.SIGALRM})
            yield step
        signal.setitimer(signal.ITIMER_REAL, 0)


def train(rank: int, store: str, seconds: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
    layer = torch.nn.Linear(16, 1)
    for step in Metronome(seconds):
        layer(torch.randn(8, 16)).pow(2).mean().backward()
        dist.all_reduce(layer.weight.grad)
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    store = f"file://{os.getcwd()}/meet"
    mp.spawn(train, args=(store, args.seconds / STEPS), nprocs=WORLD)

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 75.0
# limit = 200.0
# ///
