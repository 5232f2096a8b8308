"""mpirun: rank 1 waits for its configuration from a server that never sends it."""

import argparse
import os
import socket

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def configuration(address: str) -> bytes:
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as server:
        return server.recv(4096)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--port", required=True)
    args = parser.parse_args()
    rank, world = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    if rank == 1:
        configuration(args.server)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=world
    )
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = """mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 python train.py \
# --server $ADDRESS --port $PORT"""
# world = "silent_service"
# culprits = [[1]]
# waiting = [0]
# steps = ["arguments", "data_module", "process_group"]
# after = ["Args parsed"]
# own_code = true
# calls = ['socket\.recv', "configuration"]
# ///
