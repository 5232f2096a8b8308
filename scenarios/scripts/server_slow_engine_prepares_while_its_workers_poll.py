"""Healthy and slow: three workers look at a flag in shared memory for their next step; their engine
waits for its sampler's data between two steps, by sleeping, for most of a minute, and goes on.

All end after the third step.
"""

import argparse
import multiprocessing
import time
from multiprocessing.shared_memory import SharedMemory

import setproctitle

spawn = multiprocessing.get_context("spawn")
STEPS = 3


def run_worker(rank: int, name: str) -> None:
    setproctitle.setproctitle(f"VLLM::Worker_TP{rank}")
    memory = SharedMemory(name)
    for step in range(1, STEPS + 1):
        while memory.buf[0] < step:
            time.sleep(0.005)
        memory.buf[1 + rank] = step


def run_engine(seconds: float) -> None:
    setproctitle.setproctitle("VLLM::EngineCore")
    memory = SharedMemory(create=True, size=8)
    processes = [spawn.Process(target=run_worker, args=(n, memory.name)) for n in range(3)]
    for process in processes:
        process.start()
    for step in range(1, STEPS + 1):
        time.sleep(seconds / STEPS)
        memory.buf[0] = step
        while min(memory.buf[1:4]) < step:
            time.sleep(0.005)
        print("step", step, flush=True)
    for process in processes:
        process.join()
    memory.unlink()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    engine = spawn.Process(target=run_engine, args=(args.seconds,))
    engine.start()
    engine.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# needs = ["setproctitle"]
# amount = 105.0
# limit = 280.0
# ///
