"""Healthy and slow: rank 1 of four takes the versions of a data set from the stream of a gRPC
service and broadcasts each; the service sends one as soon as its crawler thread has it, by a timer.

The service is a process that waits, the crawler a thread of it that sleeps until its next hour.
"""

import argparse
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent import futures

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4
VERSIONS = 3


class Crawler:
    def __init__(self, seconds: float) -> None:
        self.seconds, self.version = seconds, 0
        self.changed = threading.Condition()
        threading.Thread(target=self._crawl, name="crawler", daemon=True).start()

    def _crawl(self) -> None:
        nothing = threading.Event()
        while True:
            nothing.wait(self.seconds)
            with self.changed:
                self.version += 1
                self.changed.notify_all()

    def versions(self, request: bytes, context: object) -> Iterator[bytes]:
        for version in range(1, VERSIONS + 1):
            with self.changed:
                self.changed.wait_for(lambda wanted=version: self.version >= wanted)
            yield str(version).encode()


def serve(port: int, seconds: float) -> None:
    import grpc

    server = grpc.server(futures.ThreadPoolExecutor(4))
    handler = grpc.unary_stream_rpc_method_handler(Crawler(seconds).versions)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("Data", {"Versions": handler}),)
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def versions(port: int) -> Iterator[int]:
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_stream("/Data/Versions")
        for one in ask(b"", wait_for_ready=True):
            yield int(one)


def train(rank: int, store: str, port: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
    told = versions(port) if rank == 1 else iter(range(VERSIONS))
    for one in told:
        version = torch.tensor(one)
        dist.broadcast(version, src=1)
        print(f"rank {rank}: version {version.item()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    service = context.Process(target=serve, args=(args.port, args.seconds / VERSIONS))
    service.start()
    mp.spawn(train, args=(f"file://{os.getcwd()}/meet", args.port), nprocs=WORLD)
    service.terminate()
    service.join()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# needs = ["grpc"]
# amount = 75.0
# limit = 240.0
# ///
