"""Healthy: rank 2 sends every rank its shard over plain TCP, as slowly as its own disk reads.

The readers are in recv, the sender sleeps between pieces of 2 KiB.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SERVER, PIECE, PIECES = 2, 2048, 16


def serve(port: int, readers: int, pause: float) -> None:
    with socket.create_server(("127.0.0.1", port)) as server:
        peers = [server.accept()[0] for _ in range(readers)]
        for _ in range(PIECES):
            time.sleep(pause)
            for peer in peers:
                peer.sendall(os.urandom(PIECE))
        for peer in peers:
            peer.close()


def receive(port: int) -> bytes:
    while True:
        try:
            link = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            time.sleep(0.2)
    with link, link.makefile("rb") as stream:
        return stream.read(PIECE * PIECES)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data-port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=45.0)
    args = parser.parse_args()
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    world = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    if rank == SERVER:
        serve(args.data_port, world - 1, args.seconds / PIECES)
    else:
        print(f"rank {rank} has {len(receive(args.data_port))} bytes", flush=True)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=world
    )
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = """mpirun --allow-run-as-root --oversubscribe --bind-to none -n 4 python train.py \
# --port $PORT --data-port 29817 --seconds $AMOUNT"""
# outcome = "ok"
# amount = 50.0
# limit = 240.0
# ///
