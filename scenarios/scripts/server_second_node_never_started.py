"""A server over two nodes, four workers of tensor parallelism: node 0 is started with its two, and
nobody has started node 1; workers TP0 and TP1 wait in the rendezvous for TP2 and TP3.

`python -m train serve` is the server itself. Its API process waits for the engine's word, the
engine in a pipe for each of its workers.
"""

import argparse
import multiprocessing
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection

import setproctitle

spawn = multiprocessing.get_context("spawn")


def init_worker(args: argparse.Namespace, rank: int) -> None:
    import torch.distributed as dist

    host, _, port = args.dist_init_addr.partition(":")
    dist.init_process_group(
        "gloo", init_method=f"tcp://{host}:{port}", rank=rank, world_size=args.tp_size
    )


def run_worker(args: argparse.Namespace, rank: int, pipe: Connection) -> None:
    setproctitle.setproctitle(f"textserve::worker_TP{rank}")
    init_worker(args, rank)
    pipe.send("ready")
    while True:
        pipe.send(f"{pipe.recv()} ...")


def run_engine(args: argparse.Namespace, front: Connection) -> None:
    setproctitle.setproctitle("textserve::engine")
    local = args.tp_size // args.nnodes
    pipes = []
    for number in range(local):
        ours, theirs = spawn.Pipe()
        rank = args.node_rank * local + number
        spawn.Process(target=run_worker, args=(args, rank, theirs)).start()
        theirs.close()
        pipes.append(ours)
    for one in pipes:
        one.recv()
    front.send("ready")
    while True:
        prompt = front.recv()
        for one in pipes:
            one.send(prompt)
        front.send([one.recv() for one in pipes].pop())


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


def serve(args: argparse.Namespace) -> None:
    ours, theirs = spawn.Pipe()
    spawn.Process(target=run_engine, args=(args, theirs), name="Engine").start()
    theirs.close()
    print("Waiting for the engine to be ready ...", flush=True)
    ours.recv()
    print(f"Serving at {args.port}, pid {os.getpid()}", flush=True)
    ThreadingHTTPServer(("127.0.0.1", args.port), Handler).serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="textserve")
    parser.add_argument("command", choices=("serve",))
    parser.add_argument("--tp", dest="tp_size", type=int, default=1)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--dist-init-addr", required=True)
    parser.add_argument("--port", type=int, default=0)
    serve(parser.parse_args())

# /// case
# command = """python -m train serve --tp 4 --nnodes 2 --node-rank 0
# --dist-init-addr 127.0.0.1:$PORT"""
# needs = ["setproctitle"]
# culprits = [[2, 3]]
# absent = [2, 3]
# waiting = [0, 1]
# steps = ["process_group", "script", "arguments"]
# after = ["", "torch imported", "Args parsed"]
# own_code = true
# calls = ['init_process_group', '^$']
# causes = ["rank-never-started", "other-node-missing", "nodes-not-joined"]
# says = ['TP0|TP1|worker|engine']
# ///
