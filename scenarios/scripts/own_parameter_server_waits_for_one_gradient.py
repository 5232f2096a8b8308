"""A parameter server over HTTP, a command of its own, adds up the gradients of four workers; worker
2 skips a bad batch, pushes nothing for it, and asks for the weights of the next version.

Workers 0, 1 and 3 wait in their POST, since the server answers when all four are there; worker 2
waits in its GET, for the version that comes after them. The server's threads wait in a condition.
"""

import argparse
import json
import math
import time
import urllib.error
import urllib.request


class Weights:
    def __init__(self, base: str) -> None:
        self.base = base

    def wait_until_up(self) -> None:
        while True:
            try:
                with urllib.request.urlopen(f"{self.base}/health", timeout=5):
                    return
            except urllib.error.URLError:
                time.sleep(0.3)

    def pull(self, version: int) -> list[float]:
        with urllib.request.urlopen(f"{self.base}/weights/{version}") as answer:
            return json.load(answer)

    def push(self, version: int, gradient: list[float]) -> None:
        body = json.dumps({"version": version, "gradient": gradient}).encode()
        with urllib.request.urlopen(f"{self.base}/gradients", data=body) as answer:
            answer.read()


def batch(worker: int, step: int) -> list[float]:
    if worker == 2 and step == 4:
        return [float("nan")] * 8
    return [worker + step / 10] * 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", type=int, required=True)
    parser.add_argument("--server", required=True)
    args = parser.parse_args()
    weights = Weights(args.server)
    weights.wait_until_up()
    for step in range(20):
        current = weights.pull(step)
        rows = batch(args.worker, step)
        if any(math.isnan(one) for one in rows):
            continue
        weights.push(step, [a - b for a, b in zip(rows, current, strict=True)])
    print(f"worker {args.worker}: {weights.pull(20)[0]:.3f}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "sh train.sh $PORT"
# culprits = [[2], [-1], [0]]
# steps = ["script", "http", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['pull', 'urlopen', 'getresponse', 'readinto', 'recv', 'wait', 'push']
# causes = ["deadlock", "endpoint-silent", "server-process-stuck", "thread-stuck"]
# says = ['pull|weights|parameters\.py']
# [files]
# "train.sh" = """
# python parameters.py $1 &
# for worker in 0 1 2 3; do
#     python train.py --worker $worker --server http://127.0.0.1:$1 &
# done
# wait
# """
# "parameters.py" = '''
# """Weights by version; a version is there when all workers have sent their gradients."""
# import json
# import sys
# import threading
# from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
#
# WORKERS = 4
# CHANGED = threading.Condition()
# VERSIONS = [[0.0] * 8]
# GRADIENTS = []
#
#
# class Handler(BaseHTTPRequestHandler):
#     def answer(self, value):
#         body = json.dumps(value).encode()
#         self.send_response(200)
#         self.send_header("Content-Length", str(len(body)))
#         self.end_headers()
#         self.wfile.write(body)
#
#     def do_GET(self):
#         if self.path == "/health":
#             return self.answer("ok")
#         version = int(self.path.rpartition("/")[2])
#         with CHANGED:
#             CHANGED.wait_for(lambda: len(VERSIONS) > version)
#             self.answer(VERSIONS[version])
#
#     def do_POST(self):
#         asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
#         with CHANGED:
#             GRADIENTS.append(asked["gradient"])
#             if len(GRADIENTS) == WORKERS:
#                 step = [sum(column) / WORKERS for column in zip(*GRADIENTS)]
#                 VERSIONS.append([old + new for old, new in zip(VERSIONS[-1], step)])
#                 GRADIENTS.clear()
#                 CHANGED.notify_all()
#             CHANGED.wait_for(lambda: len(VERSIONS) > asked["version"] + 1)
#         self.answer("taken")
#
#     def log_message(self, *words):
#         pass
#
#
# ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
# '''
# ///
