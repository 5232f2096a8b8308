"""A server that forks its workers beforehand: its arbiter ends each one that was not heard of for
six seconds and starts another, and the model takes longer than that to load. It goes on for ever.

The time limit is the arbiter's, of a worker that answers no request; one that loads its model tells
nothing meanwhile. The port is open from the beginning, and nobody accepts.
"""

import argparse
import os
import signal
import socket
import tempfile
import time
from pathlib import Path


class Worker:
    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.heartbeat = tempfile.TemporaryFile()  # noqa: SIM115
        self.model: list[bytes] = []

    def load_model(self) -> None:
        for _ in range(200):  # parts of a file that lies far away
            self.model.append(os.urandom(1024))
            time.sleep(0.1)

    def notify(self) -> None:
        os.fchmod(self.heartbeat.fileno(), 0o600)

    def run(self) -> None:
        self.load_model()
        self.listener.settimeout(1)
        while True:
            self.notify()
            try:
                asked, _ = self.listener.accept()
            except TimeoutError:
                continue
            asked.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            asked.close()


class Arbiter:
    def __init__(self, args: argparse.Namespace) -> None:
        self.listener = socket.create_server(("127.0.0.1", args.port))
        self.timeout, self.number = args.timeout, args.workers
        self.workers: dict[int, Worker] = {}
        self.log = Path("error.log").open("a", buffering=1)  # noqa: SIM115

    def spawn_worker(self) -> None:
        worker = Worker(self.listener)
        pid = os.fork()
        if pid:
            self.workers[pid] = worker
            self.log.write(f"[INFO] Booting worker with pid: {pid}\n")
            return
        try:
            worker.run()
        finally:
            os._exit(1)

    def murder_workers(self) -> None:
        for pid, worker in self.workers.items():
            silent = time.time() - os.fstat(worker.heartbeat.fileno()).st_ctime
            if silent > self.timeout:
                self.log.write(f"[CRITICAL] WORKER TIMEOUT (pid:{pid})\n")
                os.kill(pid, signal.SIGABRT)

    def reap_workers(self) -> None:
        while self.workers:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self.workers.pop(pid, None)

    def run(self) -> None:
        while True:
            self.reap_workers()
            while len(self.workers) < self.number:
                self.spawn_worker()
            self.murder_workers()
            time.sleep(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("serve",))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=6)
    Arbiter(parser.parse_args()).run()

# /// case
# command = "python -m train serve --port $PORT"
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['load_model', 'run', 'sleep', 'murder_workers', 'spawn_worker', '^$']
# causes = ["restarted-in-vain", "child-died", "worker-dead", "killed-from-outside"]
# says = ['SIGABRT|signal 6|again']
# limit = 240
# ///
