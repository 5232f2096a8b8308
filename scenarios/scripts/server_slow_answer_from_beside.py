"""Healthy: a server that the job's shell script has started beside the training answers a request
after long, by a thread that reads from its worker; rank 1 waits at a barrier for rank 0, which
asked.

The worker sleeps between two tokens; no process of the job prints a line meanwhile.
"""

import argparse
import time
import urllib.error
import urllib.request

import torch.distributed as dist


def generate(port: str) -> bytes:
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", data=b"once") as answer:
                return answer.read()
        except urllib.error.URLError:
            time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        generate(args.port)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "sh train.sh $PORT $AMOUNT"
# outcome = "ok"
# amount = 30.0
# [files]
# "train.sh" = """
# python serve.py $1 $2 &
# server=$!
# torchrun --standalone --nproc_per_node=2 train.py --port $1
# status=$?
# kill $server
# exit $status
# """
# "serve.py" = '''
# """A worker makes ten tokens for each request."""
# import multiprocessing
# import sys
# import time
# from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
#
#
# def decode(seconds):
#     time.sleep(seconds)  # the accelerator
#     return b"token "
#
#
# def work(asked, seconds):
#     while True:
#         asked.recv()
#         asked.send(b"".join(decode(seconds / 10) for _ in range(10)))
#
#
# class Handler(BaseHTTPRequestHandler):
#     def do_POST(self):
#         ASKS.send(self.rfile.read(int(self.headers["Content-Length"])))
#         text = ASKS.recv()
#         self.send_response(200)
#         self.end_headers()
#         self.wfile.write(text)
#
#
# if __name__ == "__main__":
#     ASKS, asked = multiprocessing.Pipe()
#     own = (asked, float(sys.argv[2]))
#     multiprocessing.Process(target=work, args=own, daemon=True).start()
#     ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
# '''
# ///
