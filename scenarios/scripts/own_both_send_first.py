"""Ranks 1 and 2 of four exchange shards by a socket, and both send all of it before they read.

A shard is larger than what the kernel keeps for a connection. The others wait for rank 1's word.
"""

import argparse
import os
import socket
import subprocess
import sys
import time

WORLD, SIZE = 4, 64 * 2**20
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
args = parser.parse_args()


def connected(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.2)


def received(peer: socket.socket, size: int) -> int:
    left = size
    while left:
        left -= len(peer.recv(min(left, 65536)))
    return size


def exchange(rank: int, peer: socket.socket) -> int:
    peer.sendall(bytes([rank]) * SIZE)
    return received(peer, SIZE)


def train(rank: int) -> None:
    if rank == 1:
        with socket.create_server(("127.0.0.1", args.port)) as listener:
            others = {}
            for _ in range(WORLD - 1):
                peer = listener.accept()[0]
                others[peer.recv(1)[0]] = peer
        exchange(rank, others[2])
        for peer in others.values():
            peer.sendall(b"go")
    else:
        hub = connected(args.port)
        hub.sendall(bytes([rank]))
        if rank == 2:
            exchange(rank, hub)
        hub.recv(2)
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
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
# culprits = [[1, 2]]
# waiting = [0, 3]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['exchange', 'sendall']
# causes = ["deadlock"]
# ///
