"""`make train` starts four ranks by a launcher of its own; rank 2 waits for a viewer to connect.

A setting for one's own machine was left in: it shows its samples, once somebody looks. The others
are in the next sum.
"""

import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist

WORLD = 4


class Viewer:
    """Shows samples to whoever connects."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))

    def show(self, values: list[float]) -> None:
        connection, _ = self.listener.accept()
        with connection:
            connection.sendall(repr(values).encode())


def train(rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    viewer = Viewer() if rank == 2 else None
    for step in range(50):
        total = torch.full((4,), float(step))
        dist.all_reduce(total)
        if viewer is not None and step == 33:
            viewer.show(total.tolist())
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


def main() -> None:
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
        return
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1], "WORLD_SIZE": str(WORLD)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "train"], env={**os.environ, **address, "RANK": str(rank)}
        )
        for rank in range(WORLD)
    ]
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "make -s train"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "process_group", "first_collective", "all_reduce", "first_all_reduce",
# ]
# after = ["Process group ready", "First all_reduce done", ""]
# own_code = true
# calls = ['show', 'accept', 'train\.train']
#
# [files]
# Makefile = """
# train:
# 	cd . && python train.py $(PORT)
# """
# ///
