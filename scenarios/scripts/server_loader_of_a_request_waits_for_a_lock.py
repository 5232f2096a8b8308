"""An HTTP server scores a folder at a request: the request's thread goes through a DataLoader
with two workers, and worker 1 wants the lock of a cache that a process outside of the job has.

The main thread accepts further requests, and /health would be answered. Who asked is a client
outside of the job, which waits for its answer.
"""

import argparse
import fcntl
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 9:
            self.read_cache()
        return torch.full((4,), float(index))

    def read_cache(self) -> None:
        with open(os.environ["LOCK"], "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)


def score() -> float:
    return sum(float(batch.sum()) for batch in DataLoader(Texts(), 4, num_workers=2))


class Handler(BaseHTTPRequestHandler):
    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(b"ok")

    def do_POST(self) -> None:
        self.answer(str(score()).encode())

    def log_message(self, *words: object) -> None:
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    ThreadingHTTPServer(("127.0.0.1", args.port), Handler).serve_forever()

# /// case
# command = "bash serve.sh $PORT"
# world = "held_lock"
# culprits = [[0], [-1]]
# steps = ["script", "arguments", "import_torch", "first_batch", "data_module", "training"]
# after = ["Args parsed", "torch imported", ""]
# own_code = true
# calls = ['read_cache', '__getitem__', 'score', 'do_POST', 'DataLoader', 'get', 'flock']
# causes = ["file-lock-held", "lock-not-to-be-had"]
# says = ['cache\.lock']
# [files]
# "serve.sh" = '''
# python train.py --port $1 &
# until curl -s http://127.0.0.1:$1/health; do sleep 1; done
# curl -s -X POST http://127.0.0.1:$1/score
# wait
# '''
# ///
