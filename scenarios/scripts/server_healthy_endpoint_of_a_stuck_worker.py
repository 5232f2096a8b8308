"""The server beside the training answers /health, and its worker looks again and again for an
adapter that nobody saves; rank 0 has asked it to generate. Rank 1 is at a barrier.

The server's main thread accepts, a thread of it handles the request and reads the worker's pipe.
Rank 0 waits for the server, the server for its worker: the worker stands still.
"""

import sys
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist


def wait_for_health(base: str) -> None:
    while True:
        try:
            urllib.request.urlopen(base + "/health").close()
            return
        except urllib.error.URLError:
            time.sleep(0.5)


def generate(base: str) -> bytes:
    with urllib.request.urlopen(base + "/generate", data=b"once upon a time") as answer:
        return answer.read()


def main() -> None:
    base = f"http://127.0.0.1:{sys.argv[1]}"
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        wait_for_health(base)
        generate(base)
    dist.barrier()
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "sh train.sh $PORT"
# culprits = [[0], [-1]]
# waiting = [1]
# steps = ["process_group", "barrier"]
# after = ["Process group ready"]
# own_code = true
# calls = ['urlopen', 'generate', 'load_adapter', 'sleep', 'recv', 'readinto']
# causes = ["polling-loop"]
# says = ['load_adapter|adapter\.bin']
# [files]
# "train.sh" = """
# python serve.py $1 &
# torchrun --standalone --nproc_per_node=2 train.py $1
# """
# "serve.py" = '''
# """/health and /generate; a worker generates."""
# import multiprocessing
# import os
# import sys
# import threading
# import time
# from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
#
#
# def load_adapter(name):
#     while not os.path.exists(name):
#         time.sleep(0.5)
#
#
# def work(asked):
#     while True:
#         prompt = asked.recv()
#         load_adapter("adapter.bin")
#         asked.send(prompt.upper())
#
#
# class Handler(BaseHTTPRequestHandler):
#     def do_GET(self):
#         self.send_response(200)
#         self.end_headers()
#
#     def do_POST(self):
#         with LOCK:
#             ASKS.send(self.rfile.read(int(self.headers["Content-Length"])))
#             text = ASKS.recv()
#         self.send_response(200)
#         self.end_headers()
#         self.wfile.write(text)
#
#
# if __name__ == "__main__":
#     LOCK = threading.Lock()
#     ASKS, asked = multiprocessing.Pipe()
#     multiprocessing.Process(target=work, args=(asked,), daemon=True).start()
#     ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
# '''
# ///
