"""An engine with four workers of tensor parallelism asks all by their pipes to load and reads
the answers in turn. Worker TP2 leaves by os._exit(0) from a library that met a wrong driver, and
its pipe's other end lives on in the engine, and in the workers that were forked after it.

The engine waits for TP2's answer; TP0, TP1 and TP3 have loaded and wait for their next call.
"""

import argparse
import multiprocessing
import os
import time
from multiprocessing.connection import Connection

import setproctitle

fork = multiprocessing.get_context("fork")


def load(rank: int) -> str:
    time.sleep(0.5)
    if rank == 2:
        os._exit(0)
    return f"TP{rank} has 12 GiB of weights"


def run_worker(rank: int, pipe: Connection) -> None:
    setproctitle.setproctitle(f"textserve::Worker_TP{rank}")
    while True:
        method = pipe.recv()
        pipe.send(load(rank) if method == "load" else method)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=4)
    args = parser.parse_args()
    pipes = [fork.Pipe() for _ in range(args.tp)]
    for rank, (_, theirs) in enumerate(pipes):
        fork.Process(target=run_worker, args=(rank, theirs), daemon=True).start()
    for ours, _ in pipes:
        ours.send("load")
    for ours, _ in pipes:
        print(ours.recv(), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --tp 4"
# needs = ["setproctitle"]
# culprits = [[0], [-1], [2]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['recv', 'main', '^$']
# causes = ["pipe-writer-gone", "child-died", "worker-dead", "nobody-sends", "rank-left"]
# says = ['ended|exited|status 0|died']
# ///
