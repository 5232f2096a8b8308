"""Healthy and silent: rank 0's loader worker reads its records from a server on this machine, which
sends a little of them at a time; the other ranks have theirs and wait in their first backward.
"""

import argparse
import multiprocessing
import pickle
import socket
import socketserver
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

ADDRESS = "records.sock"
PARTS = 50


class Trickle(socketserver.BaseRequestHandler):
    seconds = 50.0

    def handle(self) -> None:
        whole = pickle.dumps([[float(row)] * 16 for row in range(64)])
        size = len(whole) // PARTS + 1
        self.request.sendall(len(whole).to_bytes(8, "big"))
        for start in range(0, len(whole), size):
            self.request.sendall(whole[start : start + size])
            time.sleep(self.seconds / PARTS)


def serve(seconds: float) -> None:
    Trickle.seconds = seconds
    with socketserver.ThreadingUnixStreamServer(ADDRESS, Trickle) as server:
        server.serve_forever()


class Remote(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(ADDRESS)
            file = peer.makefile("rb")
            for row in pickle.loads(file.read(int.from_bytes(file.read(8), "big"))):
                yield torch.tensor(row)


def train(rank: int, world: int, port: int) -> None:
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    if rank == 0:
        loader = DataLoader(Remote(), batch_size=8, num_workers=1)
    else:
        loader = DataLoader(torch.randn(64, 16), batch_size=8)
    for batch in loader:
        model(batch).pow(2).mean().backward()
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    server = multiprocessing.Process(target=serve, args=(args.seconds,), daemon=True)
    server.start()
    mp.spawn(train, args=(3, args.port), nprocs=3)
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 50.0
# limit = 400.0
# ///
