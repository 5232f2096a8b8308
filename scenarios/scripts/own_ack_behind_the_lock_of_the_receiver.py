"""Two threads, one connection: rank 1 receives with the lock that its acknowledgement needs.

Rank 2 sends the next part once the part before it was acknowledged. Ranks 0 and 3 wait for the word
of rank 1.
"""

import argparse
import os
import queue
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Client, Connection, Listener

WORLD = 4
KEY = b"weights"


class Channel:
    """A connection that threads share: whoever uses it has its lock."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.lock = threading.Lock()
        self.acknowledge: queue.Queue[int] = queue.Queue()
        threading.Thread(target=self._acknowledging, name="acks", daemon=True).start()

    def _acknowledging(self) -> None:
        while True:
            number = self.acknowledge.get()
            time.sleep(0.05)  # a part is written first
            with self.lock:
                self.connection.send(("ack", number))

    def receive(self) -> tuple[int, bytes]:
        with self.lock:
            number, body = self.connection.recv()
        self.acknowledge.put(number)
        return number, body


def connected(port: int) -> Connection:
    while True:
        try:
            return Client(("127.0.0.1", port), authkey=KEY)
        except ConnectionRefusedError:
            time.sleep(0.1)


def serve(port: int) -> None:
    """Rank 1: takes the weights of rank 2, and tells the others."""
    with Listener(("127.0.0.1", port), authkey=KEY) as listener:
        peers = {}
        while len(peers) < WORLD - 1:
            one = listener.accept()
            peers[one.recv()] = one
    channel = Channel(peers[2])
    for _ in range(4):
        number, body = channel.receive()
        print(f"part {number}: {len(body)} bytes", flush=True)
    for rank in (0, 3):
        peers[rank].send("go")


def give(connection: Connection) -> None:
    """Rank 2: sends part after part."""
    for number in range(4):
        connection.send((number, bytes(1000)))
        assert connection.recv() == ("ack", number)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    if "RANK" in os.environ:
        rank = int(os.environ["RANK"])
        if rank == 1:
            serve(args.port)
            return
        connection = connected(args.port)
        connection.send(rank)
        if rank == 2:
            give(connection)
        else:
            connection.recv()
        return
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[1], [1, 2]]
# waiting = [0, 3]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['recv', 'receive', 'serve', 'acknowledging']
# causes = ["deadlock", "lock-order", "nobody-sends"]
# ///
