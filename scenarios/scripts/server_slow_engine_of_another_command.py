"""Healthy: a server that the job's shell script has started says 503 until its engine has loaded
its weights, which takes long; rank 0 of three asks again and again, the others wait in broadcast.

The engine is a child of the server's, which awaits its line. Then three rollouts, each of which
takes a while, and the end.
"""

import argparse
import http.client
import json
import socket
import time

import torch
import torch.distributed as dist


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def ask(path: str, what: str) -> object:
    while True:
        try:
            one = UnixConnection(path)
            one.request("GET", what)
            answer = one.getresponse()
            if answer.status == 200:
                return json.load(answer)
            one.close()
        except OSError:
            pass
        time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    tokens = torch.zeros(4)
    if dist.get_rank() == 0:
        ask(args.server, "/health")
    dist.broadcast(tokens, 0)
    for _ in range(3):
        if dist.get_rank() == 0:
            tokens = torch.tensor(ask(args.server, "/generate"))
        dist.broadcast(tokens, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "sh train.sh $AMOUNT"
# needs = ["aiohttp"]
# outcome = "ok"
# amount = 36.0
# [files]
# "train.sh" = """
# python serve.py server.sock $1 &
# server=$!
# torchrun --standalone --nproc_per_node=3 train.py --server server.sock
# status=$?
# kill $server
# exit $status
# """
# "serve.py" = '''
# """An API over a Unix socket, before an engine over pipes."""
# import asyncio
# import sys
#
# from aiohttp import web
#
#
# class Server:
#     async def start(self, app):
#         pipe = asyncio.subprocess.PIPE
#         words = [sys.executable, "engine.py", sys.argv[2]]
#         self.engine = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
#         self.ready = asyncio.create_task(self.engine.stdout.readline())
#
#     async def health(self, request):
#         return web.json_response("ok", status=200 if self.ready.done() else 503)
#
#     async def generate(self, request):
#         self.engine.stdin.write(b"once upon\n")
#         words = (await self.engine.stdout.readline()).split()
#         return web.json_response([float(word) for word in words])
#
#
# server, app = Server(), web.Application()
# app.on_startup.append(server.start)
# app.router.add_get("/health", server.health)
# app.router.add_get("/generate", server.generate)
# web.run_app(app, path=sys.argv[1], print=None)
# '''
# "engine.py" = '''
# """It loads its weights, and answers a line with tokens."""
# import sys
# import time
#
# weights = []
# for shard in range(4):
#     time.sleep(float(sys.argv[1]) / 6)  # a slow disk
#     weights.append(bytearray(1 << 20))
# print("ready", flush=True)
# for line in sys.stdin:
#     time.sleep(float(sys.argv[1]) / 9)  # the accelerator
#     print("1 2 3 4", flush=True)
# '''
# ///
