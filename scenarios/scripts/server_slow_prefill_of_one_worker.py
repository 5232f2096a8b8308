"""Healthy: an engine with three workers; worker 1 prefills a long prompt for a minute (it
computes without a pause), workers 0 and 2 have done theirs and wait at their queues, the engine
waits for the three answers, and the front for the engine.
"""

import argparse
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

import setproctitle

spawn = multiprocessing.get_context("spawn")


def prefill(seconds: float) -> int:
    end, state = time.monotonic() + seconds, 1
    while time.monotonic() < end:
        for token in range(10_000):
            state = (state * 31 + token) % 1_000_003
    return state


def run_worker(rank: int, requests: Any, answers: Any) -> None:
    setproctitle.setproctitle(f"textserve::Worker_TP{rank}")
    while (seconds := requests.get()) is not None:
        answers.put((rank, prefill(seconds if rank == 1 else 0.2)))


def run_engine(seconds: float, front: Connection) -> None:
    setproctitle.setproctitle("textserve::Engine")
    answers = spawn.Queue()
    queues = [spawn.Queue() for _ in range(3)]
    for rank, one in enumerate(queues):
        spawn.Process(target=run_worker, args=(rank, one, answers), daemon=True).start()
    for one in queues:
        one.put(seconds)
    front.send([answers.get() for _ in queues])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    front, theirs = spawn.Pipe()
    engine = spawn.Process(target=run_engine, args=(args.seconds, theirs))
    engine.start()
    print(front.recv(), flush=True)
    engine.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# needs = ["setproctitle"]
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# ///
