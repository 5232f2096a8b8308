"""A scheduler of a server holds its lock while it asks a pool of threads for a batch; the
batch's callback wants to enter the result, under the same lock, in a thread of the pool.

The main thread waits for the callback's result with the lock in its hand. A watchdog thread only
sleeps, and the HTTP thread waits for requests.
"""

import argparse
import concurrent.futures
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Scheduler:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pool = concurrent.futures.ThreadPoolExecutor(4, "batch")
        self.done: list[int] = []

    def enter_result(self, batch: int) -> None:
        with self.lock:
            self.done.append(batch)

    def run_batch(self, batch: int) -> int:
        time.sleep(0.1)
        self.enter_result(batch)
        return batch

    def step(self, batch: int) -> None:
        if batch < 3:
            self.pool.submit(self.run_batch, batch).result()
            return
        with self.lock:
            self.pool.submit(self.run_batch, batch).result()


def watch(scheduler: Scheduler) -> None:
    while True:
        time.sleep(5)
        _ = len(scheduler.done)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    scheduler = Scheduler()
    server = ThreadingHTTPServer(("127.0.0.1", args.port), BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True, name="http").start()
    threading.Thread(target=watch, args=(scheduler,), daemon=True, name="watchdog").start()
    for batch in range(6):
        scheduler.step(batch)
    print("all batches are done", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[0]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['result', 'step', 'enter_result', 'main']
# causes = ["deadlock", "lock-order", "self-deadlock", "thread-stuck"]
# says = ['lock', 'enter_result|batch_0|step']
# ///
