"""Healthy and slow: rank 0 asks a service which answers late; the others are in recv.

The service takes its time for the first answer and says nothing meanwhile.
"""

import argparse
import http.server
import os
import socket
import subprocess
import sys
import time
import urllib.request


class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        time.sleep(float(self.path.rpartition("=")[2]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"manifest")


def serve(port: int) -> None:
    http.server.HTTPServer(("127.0.0.1", port), Slow).handle_request()


def train(rank: int, world: int, port: int, seconds: float) -> None:
    if rank == 0:
        with socket.create_server(("127.0.0.1", port)) as server:
            joined = [server.accept()[0] for _ in range(world - 1)]
            url = f"http://127.0.0.1:{port + 1}/manifest?seconds={seconds}"
            manifest = urllib.request.urlopen(url).read()
            for one in joined:
                one.sendall(manifest)
        return
    while True:
        try:
            one = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    assert one.recv(100) == b"manifest"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--world", type=int, default=3)
    args = parser.parse_args()
    if "SERVES" in os.environ:
        serve(args.port + 1)
        return
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), args.world, args.port, args.seconds)
        return
    service = subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "SERVES": "1"})
    time.sleep(1)
    ranks = []
    for rank in range(args.world):
        own = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(args.world),
            "LOCAL_RANK": str(rank),
        }
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    status = max(one.wait() for one in ranks)
    service.kill()
    service.wait()
    sys.exit(status)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
