"""Each of four ranks sends its shard to rank 0 and closes the connection, which is its end mark;
rank 2 had forked its augmenter before, and that has the connection too.

Rank 0 reads from rank 2 until the end that does not come, and all others wait for its word.
"""

import argparse
import os
import socket
import subprocess
import sys
import time

WORLD = 4


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(4096):
        parts.append(part)
    return b"".join(parts)


def collect(port: int) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    peers = dict[int, socket.socket]()
    while len(peers) < WORLD - 1:
        peer, _ = listener.accept()
        peers[peer.recv(1)[0]] = peer
    for rank in sorted(peers):
        print(f"rank {rank}: {len(read_all(peers[rank]))} bytes", flush=True)
    go = socket.create_server(("127.0.0.1", port + 1))
    for _ in range(WORLD - 1):
        go.accept()[0].sendall(b"g")


def connect(port: int) -> socket.socket:
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise TimeoutError(port)


def send(rank: int, port: int) -> None:
    shards = connect(port)
    shards.sendall(bytes([rank]))
    if rank == 2:
        augment()
    shards.sendall(os.urandom(20_000))
    shards.close()
    while True:
        try:
            word = socket.create_connection(("127.0.0.1", port + 1))
            break
        except ConnectionRefusedError:
            time.sleep(0.5)
    word.recv(1)


def augment() -> None:
    """Start what turns pictures beside the rank; it has nothing to do yet."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.close(theirs)
        os.read(ours, 1)
        os._exit(0)
    os.close(ours)
    globals()["work"] = theirs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    if "RANK" in os.environ:
        rank = int(os.environ["RANK"])
        collect(given.port) if rank == 0 else send(rank, given.port)
        print(f"rank {rank} done", flush=True)
        return
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, "RANK": str(one), "LOCAL_RANK": str(one), "WORLD_SIZE": str(WORLD)},
        )
        for one in range(WORLD)
    ]
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# culprits_by_stacks = [[0]]
# waiting = [1, 3]
# steps = ["arguments", "training"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['send', 'sleep', 'main', 'collect', 'read_all']
# causes = ["stream-kept-open", "pipe-writer-gone", "nobody-sends"]
# ///
