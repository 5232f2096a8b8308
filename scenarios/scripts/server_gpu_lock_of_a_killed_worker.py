"""Four workers of a server take turns at the accelerator by one Lock of multiprocessing. Worker
2 is killed, as where memory runs out, with the lock in its hand: the others wait for it for
ever.

The server waits at the queue of results. It could know by worker 2's exit code, and does not
look.
"""

import argparse
import multiprocessing
import os
import signal
import time
from typing import Any

import setproctitle

spawn = multiprocessing.get_context("spawn")


def infer(number: int, step: int) -> int:
    time.sleep(0.05)
    if (number, step) == (2, 5):
        os.kill(os.getpid(), signal.SIGKILL)
    return step


def run_worker(number: int, accelerator: Any, results: Any) -> None:
    setproctitle.setproctitle(f"imageserver: worker {number}")
    for step in range(50):
        with accelerator:
            result = infer(number, step)
        results.put((number, result))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    accelerator, results = spawn.Lock(), spawn.Queue()
    for number in range(args.workers):
        spawn.Process(target=run_worker, args=(number, accelerator, results)).start()
    for _ in range(50 * args.workers):
        results.get()
    print("all results are there", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --workers 4"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['get', 'main', '^$', 'run_worker', 'acquire']
# causes = ["worker-dead", "child-died", "killed-from-outside", "worker-killed", "dead-owner"]
# says = ['SIGKILL|signal 9|killed']
# ///
