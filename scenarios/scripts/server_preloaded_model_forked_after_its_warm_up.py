"""A server loads its model before it forks its workers (as gunicorn --preload) and warms it up
with one prediction: OpenMP's threads exist in the master alone, and the prediction of each
worker waits for them for ever.

A client outside of the workers, a process of the same command, waits for its answer; the master
waits for the end of a worker.
"""

import argparse
import os
import signal
import socket
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch

MODEL = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.LogSigmoid())


def predict(batch: int) -> float:
    with torch.no_grad():
        return float(MODEL(torch.ones(batch, 2048)).sum())


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = str(predict(512)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


def run_worker(listener: socket.socket) -> None:
    server = HTTPServer(listener.getsockname(), Handler, bind_and_activate=False)
    server.socket = listener
    server.serve_forever()


def warm_up(port: int) -> None:
    time.sleep(1)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/predict") as answer:
        print(answer.read().decode(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(2)
    print(f"warmed up: {predict(512):.1f}", flush=True)
    listener = socket.create_server(("127.0.0.1", args.port), backlog=64)
    for _ in range(args.workers):
        if os.fork() == 0:
            run_worker(listener)
            os._exit(0)
    if os.fork() == 0:
        warm_up(args.port)
        os._exit(0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        os.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[-1], [0]]
# steps = ["script", "arguments", "import_torch"]
# after = ["Args parsed", "torch imported", ""]
# own_code = true
# calls = ['predict', 'forward', 'Linear', 'linear', 'LogSigmoid', 'do_GET', 'os\.wait']
# causes = ["openmp-after-fork", "thread-lost-by-fork"]
# says = ['fork|OpenMP|thread']
# ///
