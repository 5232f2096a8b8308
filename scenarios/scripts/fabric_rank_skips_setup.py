"""Lightning's Fabric: rank 1 reads a table over a socket before setup, and the server is silent."""

import argparse
import socket

import torch
from lightning.fabric import Fabric


def table(address: str) -> bytes:
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as server:
        return server.recv(4096)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", required=True)
    args = parser.parse_args()
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    if fabric.global_rank == 1:
        table(args.table)
    module = torch.nn.Linear(16, 1)
    model, optimizer = fabric.setup(module, torch.optim.SGD(module.parameters(), lr=0.1))
    fabric.backward(model(torch.randn(4, 16)).sum())
    optimizer.step()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --table $ADDRESS"
# world = "silent_service"
# culprits = [[1]]
# waiting = [0]
# steps = ["training", "launch", "process_group", "wrap", "data_module", "ddp"]
# after = ["Fabric launched"]
# own_code = true
# calls = ['socket\.recv', "table"]
# ///
