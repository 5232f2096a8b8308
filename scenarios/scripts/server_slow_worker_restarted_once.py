"""Healthy: a server's worker is killed while it loads (memory was short for a moment), its
supervisor starts it once more, it loads, slowly, and goes on; a client is answered and all ends.
"""

import argparse
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

spawn = multiprocessing.get_context("spawn")


def load_weights(seconds: float) -> int:
    loaded = 0
    for layer in range(10):
        time.sleep(seconds / 10)  # the disk
        loaded += layer
        if layer == 2 and not Path("was-killed").exists():
            Path("was-killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return loaded


def work(pipe: Connection, seconds: float) -> None:
    weights = load_weights(seconds)
    pipe.send("ready")
    while (prompt := pipe.recv()) is not None:
        pipe.send(f"{prompt} {weights}")


class Supervisor:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def start(self) -> tuple[BaseProcess, Connection]:
        ours, theirs = spawn.Pipe()
        worker = spawn.Process(target=work, args=(theirs, self.seconds), name="Worker")
        worker.start()
        theirs.close()
        return worker, ours

    def ready_worker(self) -> tuple[BaseProcess, Connection]:
        while True:
            worker, pipe = self.start()
            try:
                pipe.recv()
                return worker, pipe
            except EOFError:
                worker.join()
                print(f"the worker ended with {worker.exitcode}: once more", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    worker, pipe = Supervisor(parser.parse_args().seconds).ready_worker()
    pipe.send("once upon a time")
    print(pipe.recv(), flush=True)
    pipe.send(None)
    worker.join()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# ///
