"""Healthy: rank 0 waits 25 s for a rollout that comes, from an engine process that decodes token by
token and answers over ZeroMQ once the text is whole; rank 1 waits for the broadcast.
"""

import argparse
import subprocess
import sys

import torch
import torch.distributed as dist
import zmq


def rollout(port: str) -> torch.Tensor:
    socket = zmq.Context.instance().socket(zmq.REQ)
    socket.connect(f"tcp://127.0.0.1:{port}")
    socket.send_pyobj("once upon a time")
    return torch.tensor(socket.recv_pyobj())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    parser.add_argument("--seconds", required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    tokens = torch.zeros(200, dtype=torch.int64)
    if dist.get_rank() == 0:
        engine = subprocess.Popen([sys.executable, "engine.py", args.port, args.seconds])
        tokens = rollout(args.port)
        engine.terminate()
        engine.wait()
    dist.broadcast(tokens, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --port $PORT --seconds $AMOUNT"
# needs = ["zmq"]
# outcome = "ok"
# amount = 25.0
# [files]
# "engine.py" = '''
# """It decodes 200 tokens and sends them together."""
# import sys
# import time
#
# import zmq
#
#
# def decode(tokens, seconds):
#     time.sleep(seconds)  # the accelerator
#     return (31 * sum(tokens) + 7) % 32_000
#
#
# front = zmq.Context.instance().socket(zmq.REP)
# front.bind(f"tcp://127.0.0.1:{sys.argv[1]}")
# while True:
#     tokens = [len(front.recv_pyobj())]
#     while len(tokens) < 200:
#         tokens.append(decode(tokens, float(sys.argv[2]) / 200))
#     front.send_pyobj(tokens)
# '''
# ///
