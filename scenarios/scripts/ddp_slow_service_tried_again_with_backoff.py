"""Healthy and silent: rank 2 of four asks a label service that comes up late, and backs off longer
each time; the others wait in a broadcast of the labels.
"""

import argparse
import http.server
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


class Labels(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"3 1 4 1 5 9 2 6")

    def log_message(self, *_: object) -> None:
        pass


def serve_late() -> None:
    """Stand for a service on this node that another team starts."""
    time.sleep(args.seconds)
    http.server.HTTPServer(("127.0.0.1", args.port), Labels).serve_forever()


def labels() -> torch.Tensor:
    pause = 4.0
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{args.port}/labels") as answer:
                return torch.tensor([float(one) for one in answer.read().split()])
        except urllib.error.URLError:
            time.sleep(pause)
            pause = min(pause * 1.7, 30.0)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        threading.Thread(target=serve_late, daemon=True).start()
    found = labels() if rank == 2 else torch.zeros(8)
    dist.broadcast(found, src=2)
    for _ in range(3):
        dist.all_reduce(found)
    print(f"rank {rank}: {found.sum():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 40.0
# ///
