"""Rank 2's only worker thread waits for a task that it handed to its own pool.

All others ask rank 0 over HTTP whether all are ready, again and again.
"""

import argparse
import http.server
import os
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

WORLD = 4
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
args = parser.parse_args()
ready: set[str] = set()


class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        ready.add(self.path)
        self.send_response(200 if len(ready) == WORLD else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def until_all_ready(rank: int) -> None:
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{args.port}/{rank}", timeout=10):
                return
        except OSError:
            time.sleep(0.5)


class Dataset:
    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)

    def decode(self, index: int) -> int:
        return index * 2

    def load(self, index: int) -> int:
        return self.pool.submit(self.decode, index).result()

    def first(self) -> int:
        return self.pool.submit(self.load, 1).result()


def train(rank: int, world: int) -> None:
    if rank == 0:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Ready)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    if rank == 2:
        Dataset().first()
    until_all_ready(rank)
    print(f"rank {rank} trains", flush=True)
    time.sleep(2)


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
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['result', 'first', 'load']
# causes = ["pool-waits-for-itself"]
# limit = 300
# ///
