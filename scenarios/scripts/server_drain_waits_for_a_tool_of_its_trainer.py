"""A trainer asks its generation server to take new weights, which lets the running requests end
first; one of them waits for a tool, and the tool's server asks the trainer to release its sandbox.

The trainer answers that with the lock in its hand that it holds while weights are sent: a ring of
three processes over HTTP, in which every server still answers /health.
"""

import argparse
import multiprocessing
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import setproctitle

spawn = multiprocessing.get_context("spawn")


def ask(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.read().decode()


def serve(port: int, routes: dict) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = routes[self.path]() if self.path in routes else "ok"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(str(text).encode())

        def log_message(self, *words: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def run_generation(port: int, tools: int) -> None:
    setproctitle.setproctitle("rollout::generation_server")
    idle, running = threading.Condition(), [0]

    def generate() -> str:
        with idle:
            running[0] += 1
        text = ask(tools, "/execute")
        with idle:
            running[0] -= 1
            idle.notify_all()
        return text

    def update_weights() -> str:
        with idle:
            idle.wait_for(lambda: running[0] == 0)
        return "taken"

    serve(port, {"/generate": generate, "/update_weights": update_weights}).serve_forever()


def run_tools(port: int, trainer: int) -> None:
    setproctitle.setproctitle("rollout::tool_server")

    def execute() -> str:
        time.sleep(2)  # the tool itself
        return ask(trainer, "/release_sandbox")

    serve(port, {"/execute": execute}).serve_forever()


class Trainer:
    def __init__(self, port: int) -> None:
        self.sandboxes, self.port = threading.Lock(), port
        callbacks = serve(port + 2, {"/release_sandbox": self.release_sandbox})
        threading.Thread(target=callbacks.serve_forever, daemon=True).start()

    def release_sandbox(self) -> str:
        with self.sandboxes:
            return "released"

    def fit(self, steps: int) -> None:
        for step in range(steps):
            rollout = threading.Thread(target=ask, args=(self.port, "/generate"))
            rollout.start()
            time.sleep(1)
            with self.sandboxes:
                ask(self.port, "/update_weights")
            rollout.join()
            print(f"step {step}", flush=True)


def wait_until_healthy(port: int) -> None:
    while True:
        try:
            ask(port, "/health")
            return
        except OSError:
            time.sleep(0.3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    servers = [
        spawn.Process(target=run_generation, args=(port, port + 1), daemon=True),
        spawn.Process(target=run_tools, args=(port + 1, port + 2), daemon=True),
    ]
    for one in servers:
        one.start()
    for number in range(2):
        wait_until_healthy(port + number)
    Trainer(port).fit(4)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments", "http"]
# after = ["Args parsed", "Served", ""]
# own_code = true
# calls = ['ask', 'fit', 'urlopen', 'update_weights', 'execute', 'release_sandbox']
# causes = ["deadlock", "child-process-stuck", "server-process-stuck", "unknown"]
# says = ['server|child|127\.0\.0\.1:\d+']
# ///
