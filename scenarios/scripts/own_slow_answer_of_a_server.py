"""Healthy and silent: rank 2 asks a server on this machine that answers late.

The others wait in recv() of a socket of rank 2's.
"""

import argparse
import http.server
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request

WORLD = 3
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


class Late(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        time.sleep(args.seconds)
        self.send_response(200)
        self.end_headers()


def configuration() -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{args.port}/config", timeout=300) as answer:
        return answer.status


def train(rank: int, world: int) -> None:
    if rank == 2:
        with socket.create_server(("127.0.0.1", args.port + 1)) as server:
            others = [server.accept()[0] for _ in range(world - 1)]
            configuration()
            for other in others:
                other.sendall(b"go")
    else:
        while True:
            try:
                hub = socket.create_connection(("127.0.0.1", args.port + 1))
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        assert hub.recv(16) == b"go"
    print(f"rank {rank} trains", flush=True)


if "RANK" not in os.environ:
    late = http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Late)
    threading.Thread(target=late.serve_forever, daemon=True).start()


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
