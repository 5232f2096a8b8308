"""Healthy and silent: rank 1 of three ends its writer with terminate() and joins it; the writer's
handler of SIGTERM waits until the store that it writes to has taken the last part.
"""

import argparse
import multiprocessing
import signal
import sys
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def write(queue) -> None:
    def finish(number: int, frame: object) -> None:
        time.sleep(args.seconds)
        sys.exit(0)

    signal.signal(signal.SIGTERM, finish)
    while True:
        queue.get()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    writer = context.Process(target=write, args=(queue,), daemon=True) if rank == 1 else None
    if writer:
        writer.start()
    for number in range(4):
        summed = torch.full((4,), float(number))
        dist.all_reduce(summed)
        if writer:
            queue.put(summed.tolist())
    if writer:
        time.sleep(1)
        writer.terminate()
        writer.join()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
