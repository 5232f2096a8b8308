"""A server binds its port with SO_REUSEPORT, as one of yesterday did that still listens there and
accepts nothing: the kernel gives each of them a part of the connections.

Rank 0 asks its own server prompt after prompt, each time by a connection of its own, until one goes
to the other; it waits for an answer, and rank 1 for rank 0 in a barrier. Its server is idle.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import torch.distributed as dist


def wait_until_healthy(server: str) -> None:
    while True:
        try:
            urllib.request.urlopen(f"{server}/health", timeout=1).close()
            return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.5)


def generate(server: str, prompt: str) -> str:
    with urllib.request.urlopen(f"{server}/generate", data=prompt.encode()) as answer:
        return str(answer.read().decode())


def main() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        port = sys.argv[1]
        server = subprocess.Popen([sys.executable, "server.py", port])
        wait_until_healthy(f"http://127.0.0.1:{port}")
        print(f"server {server.pid} is healthy, asked by {os.getpid()}", flush=True)
        for number in range(40):
            print(generate(f"http://127.0.0.1:{port}", f"prompt {number}"), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    assert socket.SO_REUSEPORT
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py $PORT"
# world = "leftover_that_shares_its_port"
# needs = ["aiohttp"]
# culprits = [[0]]
# waiting = [1]
# steps = ["script", "process_group"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['urlopen', 'generate', 'recv', 'readinto']
# says = ['APIServer \(\d+\)']
# [files]
# "server.py" = '''
# """A server of this job."""
# import sys
#
# from aiohttp import web
#
#
# async def health(request):
#     return web.Response()
#
#
# async def generate(request):
#     return web.Response(text=(await request.text()).upper())
#
#
# app = web.Application()
# app.router.add_get("/health", health)
# app.router.add_post("/generate", generate)
# web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), reuse_port=True, print=None)
# '''
# ///
