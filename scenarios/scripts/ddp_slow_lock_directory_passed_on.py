"""Healthy and silent: three ranks unpack into one cache, one after the other, by a folder that
locks it; each polls until the one before has removed it.
"""

import argparse
import os
import time

import torch.distributed as dist


def unpack(seconds: float) -> None:
    while True:
        try:
            os.mkdir("data.lock")
            break
        except FileExistsError:
            time.sleep(0.5)
    time.sleep(seconds)
    os.rmdir("data.lock")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    dist.init_process_group("gloo")
    unpack(given.seconds / 3)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
