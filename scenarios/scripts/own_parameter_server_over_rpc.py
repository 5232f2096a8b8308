"""Parameter server over torch's RPC: rank 0 serves, ranks 1 to 3 push and wait until all have
pushed. Rank 3 asks a feature service that never answers before its second push.

Ranks 1 and 2 wait for a future that the server sets at the third push; the server waits in
rpc.shutdown() for its workers. Only rank 3 stands still.
"""

import os
import threading
import urllib.request

import torch
from torch.distributed import rpc
from torch.futures import Future

WORKERS = 3


class Server:
    def __init__(self) -> None:
        self.lock, self.pushed, self.updated = threading.Lock(), 0, Future()
        self.weights = torch.zeros(4)

    @staticmethod
    @rpc.functions.async_execution
    def push(gradient: torch.Tensor) -> Future:
        self = SERVER
        with self.lock:
            self.weights += gradient
            self.pushed += 1
            updated = self.updated
            if self.pushed == WORKERS:
                self.pushed, self.updated = 0, Future()
                updated.set_result(self.weights)
        return updated


SERVER = Server()


def batch(rank: int, step: int) -> torch.Tensor:
    if rank == 3 and step == 1:
        with urllib.request.urlopen(os.environ["SERVICE"] + "/batch") as answer:
            return torch.frombuffer(answer.read(), dtype=torch.uint8)
    return torch.ones(4)


def work(rank: int) -> None:
    for step in range(4):
        weights = rpc.rpc_sync("server", Server.push, args=(batch(rank, step),), timeout=0)
    print(f"worker {rank}: {weights.sum()}", flush=True)


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    rpc.init_rpc("server" if rank == 0 else f"worker{rank}", rank=rank, world_size=world)
    if rank:
        work(rank)
    rpc.shutdown()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# world = "silent_service"
# culprits = [[3]]
# waiting = [0, 1, 2]
# steps = ["import_torch", "process_group", "rpc"]
# after = ["torch imported", "RPC ready", "Process group ready", "First all_gather_object done", ""]
# own_code = true
# calls = ['urlopen', 'batch', 'recv', 'readinto']
# causes = ["endpoint-silent"]
# ///
