"""A protocol of its own: rank 3 sends its frame again after a timeout, with a new number.

The hub is rank 0. From the second frame on rank 3 is a round behind its own numbers; in the end it
wants one sum more, and the hub wants its farewell. The others wait for the hub's last word.
"""

import argparse
import os
import socket
import struct
import subprocess
import sys
import time

WORLD, ROUNDS = 5, 6
HEAD = struct.Struct("!cIId")  # kind, rank, number, value


def receive(connection: socket.socket) -> tuple[bytes, int, int, float]:
    data = b""
    while len(data) < HEAD.size:
        part = connection.recv(HEAD.size - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return HEAD.unpack(data)


def hub(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        peers = {}
        while len(peers) < WORLD - 1:
            connection, _ = listener.accept()
            peers[receive(connection)[1]] = connection
    for number in range(ROUNDS):
        if number == 2:
            time.sleep(1.5)  # the first batch that is long
        values = []
        for connection in peers.values():
            kind, _, told, value = receive(connection)
            assert (kind, told) == (b"D", number)
            values.append(value)
        for connection in peers.values():
            connection.sendall(HEAD.pack(b"S", 0, number, sum(values)))
        print(f"round {number}: {sum(values)}", flush=True)
    for connection in peers.values():
        while receive(connection)[0] != b"F":
            pass
    for connection in peers.values():
        connection.sendall(HEAD.pack(b"E", 0, 0, 0.0))


class Client:
    def __init__(self, rank: int, port: int) -> None:
        self.rank, self.number = rank, -1
        for _ in range(200):
            try:
                self.connection = socket.create_connection(("127.0.0.1", port))
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        self.send(b"H", 0.0)

    def send(self, kind: bytes, value: float) -> None:
        self.connection.sendall(HEAD.pack(kind, self.rank, max(self.number, 0), value))

    def sum(self, value: float) -> float:
        self.number += 1
        self.send(b"D", value)
        self.connection.settimeout(0.5 if self.rank == 3 and self.number == 2 else None)
        while True:
            try:
                _, _, number, total = receive(self.connection)
            except TimeoutError:
                self.number += 1
                self.send(b"D", value)
                self.connection.settimeout(None)
                continue
            if number == self.number:  # else it is an answer to what was given up
                return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    if "RANK" in os.environ:
        rank = int(os.environ["RANK"])
        if rank == 0:
            hub(args.port)
            return
        client = Client(rank, args.port)
        for step in range(ROUNDS):
            client.sum(rank * 0.5)
            print(f"rank {rank} step {step}", flush=True)
        client.send(b"F", 0.0)
        receive(client.connection)
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
# culprits = [[3], [0, 3]]
# waiting = [1, 2, 4]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['recv', 'receive', 'sum', 'hub']
# causes = ["deadlock", "nobody-sends"]
# ///
