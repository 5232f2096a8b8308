"""A supervisor of a server starts its worker anew whenever that ends; it ends each time while it
plans its cache (the model is larger than what it may have), and the API process polls its socket.

The pauses grow up to half a minute. What the worker says goes into a log file. Nobody gives up.
"""

import argparse
import multiprocessing
import socket
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

forkserver = multiprocessing.get_context("forkserver")


def plan_cache(weights: int, budget: int) -> int:
    left = budget - weights
    if left <= 0:
        raise MemoryError(f"no room for the cache: {weights} MiB of weights, {budget} MiB in all")
    return left // 16


def run_worker(path: str, weights: int, budget: int) -> None:
    sys.stdout = sys.stderr = open("worker.log", "a", buffering=1)  # noqa: SIM115
    print("worker: loading", flush=True)
    time.sleep(1)  # the weights
    blocks = plan_cache(weights, budget)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    while True:
        asked, _ = listener.accept()
        asked.sendall(b"%d blocks" % blocks)
        asked.close()


def run_api(path: str) -> None:
    while True:
        with socket.socket(socket.AF_UNIX) as worker:
            try:
                worker.connect(path)
                print(worker.recv(100).decode(), flush=True)
                return
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(1)


class Supervisor:
    def __init__(self, args: argparse.Namespace) -> None:
        self.path, self.args, self.pause = str(Path("worker.sock").absolute()), args, 1.0

    def start_worker(self) -> BaseProcess:
        Path(self.path).unlink(missing_ok=True)
        own = (self.path, self.args.weights, self.args.budget)
        worker = forkserver.Process(target=run_worker, args=own, name="Worker")
        worker.start()
        return worker

    def run(self) -> None:
        api = forkserver.Process(target=run_api, args=(self.path,), name="Api")
        api.start()
        worker = self.start_worker()
        while api.is_alive():
            worker.join(timeout=1)
            if worker.exitcode is not None:
                time.sleep(self.pause)
                self.pause = min(30, 2 * self.pause)
                worker = self.start_worker()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", type=int, default=24_000)
    parser.add_argument("--budget", type=int, default=16_000)
    Supervisor(parser.parse_args()).run()

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['plan_cache', 'run', 'join', 'sleep', 'run_api', 'connect', 'poll', '^$']
# causes = ["restarted-in-vain", "child-died", "worker-dead", "retry-loop", "rank-died"]
# says = ['status 1|exit(ed)? (with )?1|code 1|MemoryError|no room']
# limit = 240
# ///
