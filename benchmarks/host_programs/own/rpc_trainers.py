"""A coordinator calls its trainers on the other machines by torch's RPC."""

import os
import socket
import threading

import torch
import torch.distributed.rpc as rpc

torch.set_num_threads(1)
STATE = threading.Lock()
WEIGHTS = torch.zeros(16)


def snapshot():
    with STATE:
        return WEIGHTS.clone()


def train(round_number):
    with STATE:
        WEIGHTS.add_(torch.randn(16) * 0.1)
        if socket.gethostname() == "n3" and round_number == 4:
            return snapshot()
    return snapshot()


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    names = ["coordinator", *(f"trainer{n}" for n in range(1, world))]
    rpc.init_rpc(names[rank], rank=rank, world_size=world)
    if rank == 0:
        for round_number in range(8):
            rounds = {"args": (round_number,), "timeout": 0}
            calls = [rpc.rpc_async(name, train, **rounds) for name in names[1:]]
            torch.stack([call.wait() for call in calls]).mean(0)
    rpc.shutdown()


main()
