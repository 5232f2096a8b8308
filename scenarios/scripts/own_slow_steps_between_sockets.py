"""Healthy and silent: every rank looks at its sockets each 0.2 s, and rank 1 has its part late.

Rank 1's device answers after so many looks, each of which sleeps; the other ranks look for what
rank 1 sends round, with select() and a limit of 0.2 s, and count their looks.
"""

import argparse
import os
import select
import socket
import subprocess
import sys
import time

WORLD = 3
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


class Device:
    """It is ready after `seconds`, and until then says that it is not."""

    def __init__(self, seconds: float) -> None:
        self.looks = int(seconds / 0.2)

    def ready(self) -> bool:
        self.looks -= 1
        return self.looks <= 0


def connected(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.2)


def train(rank: int, world: int) -> None:
    if rank == 1:
        with socket.create_server(("127.0.0.1", args.port)) as server:
            peers = [server.accept()[0] for _ in range(world - 1)]
            device = Device(args.seconds)
            while not device.ready():
                time.sleep(0.2)
            for peer in peers:
                peer.sendall(b"part of rank 1\n")
                peer.close()
    else:
        hub, looks = connected(args.port), 0
        hub.setblocking(False)
        while not select.select([hub], [], [], 0.2)[0]:
            looks += 1
        print(hub.recv(64), "after", looks, "looks", flush=True)
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), WORLD)
        return
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
