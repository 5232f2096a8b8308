"""Rank 3 asks a metadata server that never answers; the others wait for rank 0's unix socket.

Rank 0 serves in threads, and answers all once every rank has pushed its gradient.
"""

import argparse
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request

WORLD = 5
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
args = parser.parse_args()
pushed = threading.Barrier(WORLD)


class Push(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.rfile.readline()
        pushed.wait()
        self.wfile.write(b"mean\n")


class Parameters(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 16


def push(gradient: str) -> bytes:
    while True:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect("parameters")
            break
        except OSError:
            client.close()
            time.sleep(0.1)
    with client, client.makefile("rwb") as stream:
        stream.write(gradient.encode() + b"\n")
        stream.flush()
        return stream.readline()


def metadata(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/latest/meta-data/instance-id") as answer:
        return answer.read()


def serve_nothing(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        threading.Event().wait()


def train(rank: int, world: int) -> None:
    if rank == 0:
        server = Parameters("parameters", Push)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    if rank == 3:
        metadata(args.port)
    push(f"gradient of {rank}")
    print(f"rank {rank} trains", flush=True)


if "RANK" not in os.environ:
    threading.Thread(target=serve_nothing, args=(args.port,), daemon=True).start()


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
# waiting = [0, 1, 2, 4]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['metadata', 'urlopen', 'readinto', 'recv', 'getresponse']
# causes = ["endpoint-silent"]
# ///
