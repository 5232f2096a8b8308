"""Healthy and idle: rank 0 serves, and rank 1 asks it, then nothing for long, then again.

Rank 2 has asked once and waits for the second round at rank 0 as well.
"""

import argparse
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time

WORLD = 3
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


second = threading.Event()
served = threading.Semaphore(0)


class Round(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        word = self.rfile.readline()
        if word == b"second\n":
            second.set()
        elif word == b"wait\n":
            second.wait()
        self.wfile.write(b"done\n")
        served.release()


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def ask(word: bytes) -> None:
    while True:
        try:
            with socket.create_connection(("127.0.0.1", args.port)) as peer:
                peer.sendall(word + b"\n")
                assert peer.recv(5) == b"done\n"
            return
        except OSError:
            time.sleep(0.2)


def train(rank: int, world: int) -> None:
    if rank == 0:
        with Server(("127.0.0.1", args.port), Round) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            for _ in range(4):
                served.acquire()
            server.shutdown()
    elif rank == 1:
        ask(b"first")
        time.sleep(args.seconds)
        ask(b"second")
    else:
        ask(b"first")
        ask(b"wait")
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
