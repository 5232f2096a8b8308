"""Actors fetch the learner's newest weights from a server of its own; a store counts the rounds."""

import io
import os
import socketserver
import threading
import urllib.request
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from torch.distributed import TCPStore

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LEARNER = os.environ["MASTER_ADDR"]
PORT = 9440


class Weights(BaseHTTPRequestHandler):
    def do_GET(self):
        body = io.BytesIO()
        torch.save(torch.randn(32, 32), body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body.getvalue())))
        self.end_headers()
        self.wfile.write(body.getvalue())

    def log_message(self, *_):
        pass


def serve():
    socketserver.TCPServer.allow_reuse_address = True
    server = ThreadingHTTPServer(("", PORT), Weights)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def fetch_weights():
    with urllib.request.urlopen(f"http://{LEARNER}:{PORT}/weights") as answer:
        return torch.load(io.BytesIO(answer.read()))


def main():
    if RANK == 0:
        serve()
    store = TCPStore(LEARNER, 29400, WORLD, RANK == 0, timedelta(hours=1))
    for number in range(20):
        if RANK:
            weights = fetch_weights()
            store.set(f"return/{number}/{RANK}", str(float(weights.mean())))
        else:
            store.wait([f"return/{number}/{rank}" for rank in range(1, WORLD)], timedelta(hours=1))
            store.set(f"round/{number}", "done")
        store.wait([f"round/{number}"], timedelta(hours=1))


main()
