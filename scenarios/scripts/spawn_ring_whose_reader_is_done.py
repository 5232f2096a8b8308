"""mp.spawn: each of three ranks writes activations into a ring in shared memory, for an evaluator
of its own; that of rank 1 has read as many as it wanted and ended well; rank 1 waits for a slot.

A semaphore counts the free slots. Ranks 0 and 2 wait in all_reduce for rank 1; no process has died
by an error.
"""

import argparse
import multiprocessing
import struct
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SLOTS, WORLD = 6, 3


class Ring:
    def __init__(self, name: str, free: Any, full: Any) -> None:
        self.memory, self.free, self.full, self.at = SharedMemory(name=name), free, full, 0

    def write(self, value: float) -> None:
        self.free.acquire()
        struct.pack_into("d", self.memory.buf, 8 * (self.at % SLOTS), value)
        self.at += 1
        self.full.release()

    def read(self) -> float:
        self.full.acquire()
        (value,) = struct.unpack_from("d", self.memory.buf, 8 * (self.at % SLOTS))
        self.at += 1
        self.free.release()
        return float(value)


def evaluate(name: str, free: Any, full: Any, wanted: int) -> None:
    ring = Ring(name, free, full)
    mean = sum(ring.read() for _ in range(wanted)) / wanted
    print(f"mean activation {mean:.3f}", flush=True)


def train(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    spawn = multiprocessing.get_context("spawn")
    memory = SharedMemory(create=True, size=8 * SLOTS)
    free, full = spawn.Semaphore(SLOTS), spawn.Semaphore(0)
    wanted = 40 if rank == 1 else 400
    reader = spawn.Process(target=evaluate, args=(memory.name, free, full, wanted))
    reader.start()
    ring = Ring(memory.name, free, full)
    for step in range(400):
        value = torch.tensor(float(step))
        dist.all_reduce(value)
        ring.write(value.item())
    reader.join()
    memory.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    mp.spawn(train, args=(parser.parse_args().port,), nprocs=WORLD)

# /// case
# command = "python train.py --port $PORT"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["training", "steady", "process_group", "first_collective", "first_all_reduce"]
# after = ["First all_reduce done", "Process group ready", ""]
# own_code = true
# calls = ['write', 'acquire', 'train\.train']
# causes = ["dead-owner", "child-died", "worker-dead", "unknown"]
# says = ['evaluate|ended|status 0|Semaphore|semaphore|acquire']
# ///
