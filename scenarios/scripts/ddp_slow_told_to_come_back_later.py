"""Healthy and slow: a server tells rank 1 of three to come back later, and then answers.

It sleeps for as long as the header says, three times; nothing else of it moves meanwhile.
"""

import argparse
import http.server
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


class Busy(http.server.BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        Busy.asked += 1
        ready = Busy.asked > 3
        self.send_response(200 if ready else 429)
        self.send_header("Retry-After", f"{args.seconds / 3:.0f}")
        self.end_headers()
        self.wfile.write(b"words" if ready else b"")

    def log_message(self, *args: object) -> None:
        pass


def fetch(url: str) -> bytes:
    while True:
        try:
            return urllib.request.urlopen(url, timeout=60).read()
        except urllib.error.HTTPError as error:
            time.sleep(float(error.headers["Retry-After"]))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    if rank == 1:
        server = http.server.HTTPServer(("127.0.0.1", 0), Busy)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        fetch(f"http://127.0.0.1:{server.server_port}/words")
    for _ in range(5):
        model(torch.randn(4, 8)).pow(2).mean().backward()
        model.zero_grad()
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 300.0
# ///
