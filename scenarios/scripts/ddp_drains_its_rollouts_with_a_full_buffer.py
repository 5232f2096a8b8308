"""A trainer beside a rollout process: rank 0 has it finish what it has begun before it gets new
weights, and waits for its word; its samples fill rank 0's own buffer, which only rank 0 empties.

A thread of rank 0 receives samples and waits in put() for room; the rollouts wait in send for that
thread, rank 0 for the rollouts' word, and ranks 1 and 2 in a barrier for rank 0.
"""

import multiprocessing
import queue
import socket
import sys
import threading
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist

ROWS = 16


class RolloutClient:
    """What rank 0 has of the rollouts: a pipe of words, a socket of samples, and a buffer."""

    def __init__(self, words: Connection, samples: socket.socket) -> None:
        self.words, self.samples = words, samples
        self.buffer: queue.Queue[bytes] = queue.Queue(maxsize=ROWS)
        threading.Thread(target=self.receive_samples, name="samples", daemon=True).start()

    def receive_samples(self) -> None:
        stream = self.samples.makefile("rb")
        while sample := stream.read(1 << 16):
            self.buffer.put(sample)

    def get_batch(self) -> list[bytes]:
        return [self.buffer.get() for _ in range(ROWS)]

    def update_weights(self, version: int) -> None:
        self.words.send(version)
        assert self.words.recv() == "drained"


def roll_out(words: Connection, samples: socket.socket) -> None:
    """Make samples: of each version of the weights, what was begun is finished first."""
    in_flight = 3 * ROWS
    while True:
        while in_flight:
            samples.sendall(bytes(1 << 16))
            in_flight -= 1
        words.recv()
        in_flight = 6 * ROWS
        while in_flight > 3 * ROWS:
            samples.sendall(bytes(1 << 16))
            in_flight -= 1
        words.send("drained")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        context = multiprocessing.get_context("spawn")
        words, theirs = context.Pipe()
        samples, out = socket.socketpair()
        context.Process(target=roll_out, args=(theirs, out), name="rollouts", daemon=True).start()
        client = RolloutClient(words, samples)
    weights = torch.zeros(4)
    for version in range(8):
        total = torch.zeros(1)
        if rank == 0:
            total += sum(len(sample) for sample in client.get_batch())
        dist.all_reduce(total)
        weights += total / 1e6
        if rank == 0:
            client.update_weights(version)
        dist.barrier()
        print(f"rank {rank} of {sys.argv[0]}: weights of version {version}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[0]]
# waiting = [1, 2]
# steps = ["process_group", "script"]
# after = ["First all_reduce done"]
# own_code = true
# calls = ['recv', 'update_weights', 'put', 'receive_samples']
# causes = ["deadlock", "socket-unread", "pipe-unread", "queue-of-another-full", "thread-stuck"]
# says = ['receive_samples|samples|put']
# ///
