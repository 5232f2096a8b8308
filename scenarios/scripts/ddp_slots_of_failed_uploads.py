"""Rank 2 of four uploads samples by threads, three at a time; an upload that fails keeps its slot.

The slots are a threading.Semaphore. After three uploads that failed, rank 2 waits for a slot in the
middle of its step, and the others for rank 2.
"""

import argparse
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
args = parser.parse_args()


class Uploads:
    """Uploads in the background, so many at a time."""

    def __init__(self, most: int) -> None:
        self.pool = ThreadPoolExecutor(most, thread_name_prefix="upload")
        self.slots = threading.Semaphore(most)
        self.sent: list[Future[None]] = []

    def send(self, data: bytes, number: int) -> None:
        self.slots.acquire()
        self.sent.append(self.pool.submit(self._send, data, number))

    def _send(self, data: bytes, number: int) -> None:
        if number % 2:  # the second store, which is not there
            with socket.create_connection(("127.0.0.1", args.port)) as store:
                store.sendall(data)
        else:
            time.sleep(0.05)
        self.slots.release()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    uploads = Uploads(3)
    for step in range(20):
        out = model(torch.randn(4, 16))
        out.pow(2).mean().backward()
        if rank == 2:
            uploads.send(out.detach().numpy().tobytes(), step)
        time.sleep(0.1)
        if rank == 0:
            print(f"step {step}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["training", "steady", "first_step", "first_backward"]
# after = ["First backward done", "First step done", ""]
# own_code = true
# calls = ['acquire', 'send', 'train\.main']
# causes = ["slots-not-given-back", "dead-producer"]
# ///
