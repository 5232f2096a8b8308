"""Rank 3's threads meet in a Barrier for one thread more than it has; the others at a TCP hub."""

import argparse
import os
import socket
import subprocess
import sys
import threading
import time

WORLD = 6
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
args = parser.parse_args()


def load(parts: int, threads: int) -> None:
    together = threading.Barrier(parts)
    loaders = [threading.Thread(target=together.wait, daemon=True) for _ in range(threads)]
    for one in loaders:
        one.start()
    for one in loaders:
        one.join()


def train(rank: int, world: int) -> None:
    if rank == 0:
        with socket.create_server(("127.0.0.1", args.port)) as hub:
            joined = [hub.accept()[0] for _ in range(world - 1)]
        for one in joined:
            one.sendall(b"go")
        return
    if rank == 3:
        load(4, 3)
    while True:
        try:
            client = socket.create_connection(("127.0.0.1", args.port))
            break
        except OSError:
            time.sleep(0.2)
    assert client.recv(2) == b"go"
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
# command = "python train.py --port $PORT"
# culprits = [[3]]
# waiting = [0, 1, 2, 4, 5]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['join', 'load']
# causes = ["thread-stuck"]
# ///
