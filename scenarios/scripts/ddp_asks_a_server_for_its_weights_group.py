"""Reinforcement learning with a server of its own beside the trainer: rank 0 has the server join
the group for the weights before the barrier of the training, rank 1 joins it after that barrier.

The server answers as soon as all are in that group: so it waits for rank 1, rank 0 for the server,
and rank 1 for rank 0.
"""

import sys
import urllib.request

import torch
import torch.distributed as dist
from torch.distributed import TCPStore


def init_weights_group(rank: int, port: int) -> None:
    store = TCPStore("127.0.0.1", port + 1, 3, False)
    store.set(f"weights/{rank}", "here")
    if rank == 0:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/init_communicator", data=b"{}").read()


def main() -> None:
    port = int(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        init_weights_group(rank, port)
    dist.barrier()
    if rank == 1:
        init_weights_group(rank, port)
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "sh train.sh $PORT"
# culprits = [[0]]
# culprits_by_stacks = [[0, 1]]
# waiting = [1]
# steps = ["script", "barrier", "training", "first_collective"]
# after = ["Process group ready"]
# own_code = true
# calls = ['urlopen', 'recv', 'readinto', 'init_weights_group']
# [files]
# "train.sh" = """
# python serve.py $1 &
# torchrun --standalone --nproc_per_node=2 train.py $1
# """
# "serve.py" = '''
# """It joins the group for the weights when it is asked to, and answers when all are there."""
# import sys
# from datetime import timedelta
# from http.server import BaseHTTPRequestHandler, HTTPServer
#
# from torch.distributed import TCPStore
#
# PORT = int(sys.argv[1])
# STORE = TCPStore("127.0.0.1", PORT + 1, 3, True, wait_for_workers=False)
#
#
# class Handler(BaseHTTPRequestHandler):
#     def do_POST(self):
#         STORE.set("weights/2", "here")
#         STORE.wait(["weights/0", "weights/1"], timedelta(hours=1))
#         self.send_response(200)
#         self.end_headers()
#
#
# HTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
# '''
# ///
