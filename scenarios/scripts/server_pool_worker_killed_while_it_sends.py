"""Three workers of a server send their results into one queue (SimpleQueue). Worker 1 is killed,
as where memory runs out, in the middle of a large one: it had the queue's lock for writers, and
its message ends halfway.

The main process waits for the rest of that message; no end of the pipe comes, as the other
workers have its writing end too. They wait for the lock that nobody gives back.
"""

import argparse
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.queues import SimpleQueue

import setproctitle

spawn = multiprocessing.get_context("spawn")


def embed(number: int, text: int) -> tuple[int, int, bytes]:
    time.sleep(0.3)
    size = 64 << 20 if (number, text) == (1, 3) else 1 << 12
    return number, text, bytes(size)


def run_worker(number: int, results: "SimpleQueue[tuple[int, int, bytes]]") -> None:
    setproctitle.setproctitle(f"embedserver: worker {number}")
    for text in range(20):
        result = embed(number, text)
        if len(result[2]) > 1 << 20:  # memory has run out
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
        results.put(result)


def store(result: tuple[int, int, bytes]) -> None:
    number, text, data = result
    time.sleep(0.25)  # an index
    print(f"worker {number}, text {text}: {len(data)} bytes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()
    results = spawn.SimpleQueue()
    workers = [spawn.Process(target=run_worker, args=(n, results)) for n in range(args.workers)]
    for one in workers:
        one.start()
    for _ in range(20 * args.workers):
        store(results.get())


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --workers 3"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['get', 'main', '^$', 'run_worker', 'put']
# causes = ["worker-dead", "child-died", "killed-from-outside", "worker-killed", "dead-owner"]
# says = ['SIGKILL|signal 9|killed']
# ///
