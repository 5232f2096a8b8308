"""Healthy and slow: rank 1 waits on a Condition until its thread has slept out a quota.

The other ranks are in a barrier of gloo.
"""

import argparse
import os
import threading
import time

import torch.distributed as dist


class Quota:
    def __init__(self, seconds: float) -> None:
        self.changed, self.left = threading.Condition(), 0
        self.seconds = seconds
        threading.Thread(target=self._renew, daemon=True).start()

    def _renew(self) -> None:
        time.sleep(self.seconds)
        with self.changed:
            self.left = 100
            self.changed.notify_all()

    def take(self) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.left > 0)
            self.left -= 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    if int(os.environ["RANK"]) == 1:
        Quota(args.seconds).take()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
