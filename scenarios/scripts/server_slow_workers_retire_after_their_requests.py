"""Healthy and slow: a server that forks its workers beforehand and has each end after three
requests, so that nothing it leaks grows; another one is started in its place, again and again.

Rank 0 of a trainer asks it prompt after prompt, each of which takes seconds; rank 1 waits in a
barrier for rank 0.
"""

import os
import signal
import socket
import sys
import time
import urllib.request

MOST_REQUESTS = 3


class Worker:
    def __init__(self, listener: socket.socket, seconds: float) -> None:
        self.listener, self.seconds = listener, seconds

    def handle(self, asked: socket.socket) -> None:
        stream = asked.makefile("rb")
        while stream.readline().strip():
            pass
        time.sleep(self.seconds)  # the accelerator
        body = f"an answer of {os.getpid()}".encode()
        asked.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        asked.close()

    def run(self) -> None:
        for _ in range(MOST_REQUESTS):
            asked, _ = self.listener.accept()
            self.handle(asked)


class Arbiter:
    def __init__(self, port: int, seconds: float) -> None:
        self.listener, self.seconds = socket.create_server(("127.0.0.1", port)), seconds
        self.workers: set[int] = set()

    def spawn_worker(self) -> None:
        pid = os.fork()
        if pid:
            self.workers.add(pid)
            return
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            Worker(self.listener, self.seconds).run()
        finally:
            os._exit(0)

    def run(self) -> None:
        while True:
            while len(self.workers) < 2:
                self.spawn_worker()
            pid, _ = os.wait()
            self.workers.discard(pid)


def generate(port: int, number: int) -> str:
    url = f"http://127.0.0.1:{port}/generate?prompt={number}"
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


def main(port: int, seconds: float) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        server = os.fork()
        if not server:
            os.setpgid(0, 0)
            Arbiter(port, seconds / 30).run()
        time.sleep(1)
        print([generate(port, number) for number in range(30)][-1], flush=True)
        os.killpg(server, signal.SIGTERM)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py $PORT $AMOUNT"
# outcome = "ok"
# amount = 75.0
# limit = 240.0
# ///
