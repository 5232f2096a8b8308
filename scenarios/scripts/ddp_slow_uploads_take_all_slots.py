"""Healthy and silent: rank 2 of four waits for one of three slots, and three uploads are slow.

The store lets each wait for long before it answers; the other ranks are in their next backward.
"""

import argparse
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


class Uploads:
    """Uploads in the background, so many at a time."""

    def __init__(self, most: int) -> None:
        self.pool = ThreadPoolExecutor(most, thread_name_prefix="upload")
        self.slots = threading.Semaphore(most)
        self.sent: list[Future[None]] = []

    def send(self, data: bytes) -> None:
        self.slots.acquire()
        self.sent.append(self.pool.submit(self._send, data))

    def _send(self, data: bytes) -> None:
        try:
            time.sleep(args.seconds)  # the store asks for patience
        finally:
            self.slots.release()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    uploads = Uploads(3)
    for step in range(5):
        out = model(torch.randn(4, 16))
        out.pow(2).mean().backward()
        if rank == 2:
            uploads.send(out.detach().numpy().tobytes())
        if rank == 0:
            print(f"step {step}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 32.0
# ///
