"""Healthy: a server that nobody asks anything, with all that a larger one has beside it: a pool
of processes, a manager's queue with a listener of logs, a thread that collects statistics each
minute.

Everything waits for its next piece of work. After a while the server is told to end, and does.
"""

import argparse
import concurrent.futures
import multiprocessing
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import setproctitle

spawn = multiprocessing.get_context("spawn")
STOP = threading.Event()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


def listen_to_logs(lines: "multiprocessing.Queue[str]") -> None:
    setproctitle.setproctitle("modelserver: log listener")
    while (line := lines.get()) != "stop":
        print(line, flush=True)


def square(value: int) -> int:
    return value * value


def collect_statistics() -> None:
    while not STOP.wait(60):
        os.getloadavg()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    setproctitle.setproctitle("modelserver: master")
    with spawn.Manager() as manager, concurrent.futures.ProcessPoolExecutor(2, spawn) as pool:
        lines = manager.Queue()
        listener = spawn.Process(target=listen_to_logs, args=(lines,))
        listener.start()
        lines.put(f"warm: {list(pool.map(square, range(4)))}")
        threading.Thread(target=collect_statistics, daemon=True).start()
        server = ThreadingHTTPServer(("127.0.0.1", args.port), Handler)
        threading.Thread(target=lambda: (time.sleep(args.seconds), server.shutdown())).start()
        server.serve_forever()
        lines.put("stop")
        listener.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# needs = ["setproctitle"]
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# ///
