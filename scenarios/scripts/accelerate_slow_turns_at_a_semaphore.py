"""Healthy and slow: three processes read their parts one after the other by a lock on a file, as
their disk is slow; those who are done wait for everyone.
"""

import argparse
import fcntl
import hashlib
import time

import torch
from accelerate import Accelerator


def read_part(seconds: float) -> str:
    """Read and hash a part for so long, with the turn in its hand."""
    digest = hashlib.sha256()
    with open("turn", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            digest.update(b"row" * 1000)
            time.sleep(0.01)
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    print(read_part(given.seconds / 3), flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=3 --mixed_precision=no --dynamo_backend=no train.py --seconds $AMOUNT"""
# outcome = "ok"
# amount = 45.0
# limit = 240.0
# ///
