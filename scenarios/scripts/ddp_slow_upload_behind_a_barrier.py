"""Healthy and slow: rank 1 of three uploads its checkpoint in parts to a store that takes its time.

The store answers each part only after some seconds in which nothing is said; the others are at the
barrier that follows.
"""

import argparse
import http.client
import http.server
import threading
import time

import torch
import torch.distributed as dist

PARTS = 12


def serve(pause: float) -> int:
    """Start the store; return its port."""

    class Store(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(pause)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def upload(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    part = bytes(256 * 1024)
    for number in range(PARTS):
        connection.request("PUT", f"/checkpoint/{number}", part)
        connection.getresponse().read()
    connection.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    port = [serve(args.seconds / PARTS) if rank == 0 else 0]  # beside rank 0, for the sake of it
    dist.broadcast_object_list(port, src=0)
    for step in range(2):
        loss = torch.nn.Linear(8, 8)(torch.randn(4, 8)).pow(2).mean().detach()
        dist.all_reduce(loss)
        if rank == 1 and step == 0:
            upload(port[0])
        dist.barrier()
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# ///
