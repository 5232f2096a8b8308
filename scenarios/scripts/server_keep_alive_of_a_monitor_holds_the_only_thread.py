"""A metrics server of one thread keeps HTTP/1.1 connections alive; a monitor has asked it once and
keeps its session for the next minute's question, and the trainer waits for the answer to its own.

The server reads the monitor's next request, and has not taken the trainer's connection.
"""

import http.client
import multiprocessing
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import setproctitle

spawn = multiprocessing.get_context("spawn")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"{}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


def run_server(port: int) -> None:
    setproctitle.setproctitle("evalserve::metrics")
    HTTPServer(("127.0.0.1", port), Handler).serve_forever()


class Session:
    def __init__(self, port: int) -> None:
        self.port, self.connection = port, None

    def get(self, path: str) -> bytes:
        while True:
            try:
                self.connection = self.connection or http.client.HTTPConnection(
                    "127.0.0.1", self.port
                )
                self.connection.request("GET", path)
                return self.connection.getresponse().read()
            except ConnectionRefusedError:
                self.connection = None
                time.sleep(0.2)


def run_monitor(port: int, seen) -> None:
    setproctitle.setproctitle("evalserve::monitor")
    session = Session(port)
    session.get("/health")
    seen.send("healthy")
    threading.Event().wait()  # until it is told to ask again


def main(port: int) -> None:
    readable, seen = spawn.Pipe(duplex=False)
    spawn.Process(target=run_server, args=(port,), daemon=True).start()
    spawn.Process(target=run_monitor, args=(port, seen), daemon=True).start()
    print(readable.recv(), flush=True)
    session = Session(port)
    for step in range(3):
        print(step, session.get(f"/metrics?step={step}"), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))

# /// case
# command = "python train.py $PORT"
# needs = ["setproctitle"]
# culprits = [[-1], [0]]
# steps = ["script", "http"]
# after = ["", "Served"]
# own_code = true
# calls = ['getresponse', 'get', 'main', 'readinto', 'serve_forever', 'recv']
# causes = ["server-of-one-client", "endpoint-silent", "server-process-stuck", "deadlock"]
# says = ['metrics|127\.0\.0\.1:\d+']
# ///
