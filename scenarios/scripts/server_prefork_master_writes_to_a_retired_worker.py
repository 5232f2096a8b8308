"""A master keeps a pipe for each of its preforked workers and hands tasks on in turn. Worker 2
has done the number of tasks after which a worker retires, and has ended with status 0; the
master still writes its next task, eight megabytes, into that worker's pipe.

The master was to notice that by an error, but the other workers were forked later or hold a copy
of the reading end, as the master does. They wait for tasks and are whole.
"""

import argparse
import os
import pickle
import time
from typing import BinaryIO

import setproctitle

RETIRES_AFTER = {0: 1000, 1: 1000, 2: 3}


def work(number: int, tasks: BinaryIO) -> None:
    setproctitle.setproctitle(f"taskqueue: ForkPoolWorker-{number}")
    done = 0
    while done < RETIRES_AFTER[number]:
        task = pickle.load(tasks)
        time.sleep(0.05 + len(task) * 1e-9)
        done += 1
    os._exit(0)


def prefork(count: int) -> list[BinaryIO]:
    pipes = [os.pipe() for _ in range(count)]
    for number in range(count):
        if os.fork() == 0:
            work(number, os.fdopen(pipes[number][0], "rb"))
    return [os.fdopen(writes, "wb") for _, writes in pipes]


def send_task(worker: BinaryIO, payload: bytes) -> None:
    pickle.dump(payload, worker)
    worker.flush()


def dispatch(workers: list[BinaryIO], tasks: int) -> None:
    for task in range(tasks):
        size = 1 << 10 if task < 30 else 8 << 20
        send_task(workers[task % len(workers)], bytes(size))
        time.sleep(0.1)
    print("all tasks are handed on", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=60)
    args = parser.parse_args()
    dispatch(prefork(3), args.tasks)

# /// case
# command = "python train.py --tasks 90"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['write', 'pickle\.dump', 'send_task', 'dispatch', '^$']
# causes = ["pipe-unread", "child-died", "worker-dead"]
# says = ['ended|exited|status 0|has ended|died|no living']
# ///
