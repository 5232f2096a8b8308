"""Each rank sends to the next and receives from the one before: an all-reduce in a ring."""

import os
import selectors
import socket
import struct
import time

from faults import come_to

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PORT = 9210
FORMAT = struct.Struct("!d")


class Ring:
    def __init__(self):
        self.server = socket.create_server(("", PORT + RANK), reuse_port=True)
        following = (RANK + 1) % WORLD
        self.right = self.reach(
            f"n{following // int(os.environ['LOCAL_WORLD_SIZE']) + 1}", following
        )
        come_to("rendezvous")
        self.left, _ = self.server.accept()
        self.left.setblocking(False)
        self.events = selectors.DefaultSelector()
        self.events.register(self.left, selectors.EVENT_READ)

    def reach(self, host, rank):
        while True:
            try:
                return socket.create_connection((host, PORT + rank), timeout=None)
            except ConnectionRefusedError:
                time.sleep(0.1)

    def receive(self):
        data = b""
        while len(data) < FORMAT.size:
            self.events.select()
            part = self.left.recv(FORMAT.size - len(data))
            if not part:
                raise ConnectionError("the rank before has gone")
            data += part
        return FORMAT.unpack(data)[0]

    def reduce(self, value):
        total = passed = value
        for _ in range(WORLD - 1):
            self.right.sendall(FORMAT.pack(passed))
            come_to("collective")
            passed = self.receive()
            total += passed
        return total


def work(step):
    return sum(i * i for i in range(100_000)) * 0.0 + step


def main():
    come_to("before")
    ring = Ring()
    for step in range(30):
        if step == 0:
            come_to("first")
        if step == 10:
            come_to("between")
        ring.reduce(work(step))
    come_to("end")
    ring.reduce(0.0)


main()
