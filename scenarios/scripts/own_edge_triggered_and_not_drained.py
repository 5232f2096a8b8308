"""Rank 0 of four collects two messages of each rank by epoll, edge-triggered, and reads one message
an event: the second one of rank 3 has come with the first, and lies in its socket.
"""

import os
import select
import socket
import subprocess
import sys
import time

WORLD = 4
PATH = "collect.sock"
SIZE = 8


class Collector:
    def __init__(self) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(PATH)
        self.listener.listen()
        self.epoll, self.seen = select.epoll(), {}

    def admit(self) -> None:
        for _ in range(WORLD - 1):
            one, _ = self.listener.accept()
            self.seen[one.fileno()] = (one, [])
            self.epoll.register(one, select.EPOLLIN | select.EPOLLET)

    def collect(self, messages: int) -> list[bytes]:
        while any(len(got) < messages for _, got in self.seen.values()):
            for fd, _ in self.epoll.poll():
                one, got = self.seen[fd]
                got.append(one.recv(SIZE))
        return [message for _, got in self.seen.values() for message in got]


def send(rank: int) -> None:
    while not os.path.exists(PATH):
        time.sleep(0.1)
    time.sleep(0.5)
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(PATH)
        one.sendall(b"loss %03d" % rank)
        if rank != 3:
            time.sleep(1)  # computes its second one
        one.sendall(b"grad %03d" % rank)
        print(rank, one.recv(SIZE).decode(), flush=True)


def main() -> None:
    if "RANK" not in os.environ:
        ranks = []
        for rank in range(WORLD):
            own = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
            ranks.append(subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **own}))
        sys.exit(max(one.wait() for one in ranks))
    if os.environ["RANK"] != "0":
        send(int(os.environ["RANK"]))
        return
    collector = Collector()
    collector.admit()
    time.sleep(0.3)
    print(collector.collect(2), flush=True)
    for one, _ in collector.seen.values():
        one.sendall(b"all here")


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0]]
# waiting = [1, 2, 3]
# steps = ["script", "training"]
# after = [""]
# own_code = true
# calls = ['collect', 'poll', 'epoll']
# ///
