"""Prefill and decoding apart: each of the decoder's workers greets the prefill's worker of its own
number at a port of its own, and the prefill was started with one worker: TP1 waits for an answer.

ZeroMQ tries that connection again and again and says nothing. TP0 has its answer and waits in a
barrier for TP1, the decoder for both, the launcher for the decoder.
"""

import argparse
import multiprocessing
import subprocess
import sys
from multiprocessing.connection import Connection, wait

import setproctitle
import zmq

spawn = multiprocessing.get_context("spawn")


def side_channel_port(args: argparse.Namespace, rank: int) -> int:
    return int(args.port) + 1 + rank


class KVConnector:
    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self.args, self.rank, self.remote = args, rank, b""

    def serve(self) -> None:
        socket = zmq.Context.instance().socket(zmq.REP)
        socket.bind(f"tcp://127.0.0.1:{side_channel_port(self.args, self.rank)}")
        while True:
            socket.recv()
            socket.send(b"4096 blocks of 16 tokens")

    def handshake(self) -> None:
        socket = zmq.Context.instance().socket(zmq.REQ)
        socket.connect(f"tcp://127.0.0.1:{side_channel_port(self.args, self.rank)}")
        socket.send(b"agent metadata")
        self.remote = socket.recv()


def run_worker(args: argparse.Namespace, rank: int, ready: Connection) -> None:
    setproctitle.setproctitle(f"kvserve::{args.role}_TP{rank}")
    connector = KVConnector(args, rank)
    if args.role == "prefill":
        ready.send("ready")
        connector.serve()
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=args.tp
    )
    connector.handshake()
    dist.barrier()
    ready.send("ready")
    ready.recv()


def run_server(args: argparse.Namespace) -> None:
    pipes = []
    for rank in range(args.tp):
        ours, theirs = spawn.Pipe()
        spawn.Process(target=run_worker, args=(args, rank, theirs), daemon=True).start()
        theirs.close()
        pipes.append(ours)
    waited = list(pipes)
    while waited:
        for one in wait(waited):
            assert isinstance(one, Connection)
            one.recv()
            waited.remove(one)
    print(f"{args.role}: ready", flush=True)
    sys.stdin.read()


def launch(args: argparse.Namespace) -> None:
    servers = []
    for role, size in (("prefill", "1"), ("decode", "2")):
        words = [sys.executable, __file__, "--role", role, "--tp", size, "--port", args.port]
        servers.append(
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
    for one in servers:
        assert one.stdout is not None
        print(one.stdout.readline(), end="", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    parser.add_argument("--role", default="")
    parser.add_argument("--tp", type=int, default=1)
    args = parser.parse_args()
    if args.role:
        run_server(args)
    else:
        launch(args)

# /// case
# command = "python train.py --port $PORT"
# needs = ["zmq", "setproctitle"]
# culprits = [[1]]
# waiting = [0]
# steps = ["script", "arguments", "process_group", "import_torch"]
# after = ["", "Args parsed", "torch imported", "Process group ready"]
# own_code = true
# calls = ['recv', 'handshake']
# causes = ["endpoint-unserved", "nobody-sends", "endpoint-unreachable", "unknown"]
# says = ['127\.0\.0\.1:\d+|decode_TP1']
# ///
