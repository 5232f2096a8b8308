"""Four workers of a server meet at a Barrier before they serve, so that all are warm at once.
Worker 3 found nothing to serve (its shard is empty) and has left with status 0; three wait at
the Barrier.

The server waits for the word of the last one at a queue.
"""

import argparse
import multiprocessing
import time
from typing import Any

import setproctitle

spawn = multiprocessing.get_context("spawn")
SHARDS = {0: 12, 1: 7, 2: 9, 3: 0}


def run_worker(number: int, barrier: Any, words: Any) -> None:
    setproctitle.setproctitle(f"retriever: worker {number}")
    time.sleep(0.2 * number)
    if not SHARDS[number]:
        return
    barrier.wait()
    words.put(f"worker {number} is warm")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    barrier, words = spawn.Barrier(args.workers), spawn.Queue()
    for number in range(args.workers):
        spawn.Process(target=run_worker, args=(number, barrier, words), daemon=True).start()
    for _ in range(args.workers):
        print(words.get(), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --workers 4"
# needs = ["setproctitle"]
# culprits = [[0], [-1], [3]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['get', 'main', 'wait', 'run_worker', 'Barrier', '^$']
# causes = ["barrier-of-too-many", "rank-left", "child-process-stuck", "worker-stuck"]
# says = ['[Bb]arrier|status 0|ended']
# ///
