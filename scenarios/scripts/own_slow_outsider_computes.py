"""Healthy and silent: rank 0 reads the answer of a process outside the job that computes it.

It has a session of its own and was started before the ranks, as a daemon of the machine is. The
others wait for a file of rank 0's.
"""

import argparse
import hashlib
import os
import pathlib
import socket
import subprocess
import sys
import time

WORLD = 4
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--seconds", type=float, required=True)
parser.add_argument("--serve", action="store_true")
args = parser.parse_args()


def serve() -> None:
    with socket.create_server(("127.0.0.1", args.port)) as server:
        peer, _ = server.accept()
    with peer:
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            hashlib.pbkdf2_hmac("sha256", b"index", b"salt", 1_000_000)
        peer.sendall(b"built")


def ask() -> bytes:
    while True:
        try:
            with socket.create_connection(("127.0.0.1", args.port)) as stream:
                return stream.recv(5)
        except OSError:
            time.sleep(0.2)


def train(rank: int, world: int) -> None:
    marker = pathlib.Path("index")
    if rank == 0:
        marker.write_bytes(ask())
    while not marker.exists():
        time.sleep(0.5)
    print(f"rank {rank} trains", flush=True)


if args.serve:
    serve()
    sys.exit()
if "RANK" not in os.environ:
    subprocess.Popen([sys.executable, *sys.argv, "--serve"], start_new_session=True)


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
