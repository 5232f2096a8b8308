"""mp.spawn: rank 2's prefetching thread met a bad record and died; its loop waits for the queue.

The traceback was printed and nobody read it; the other ranks reduce gradients with nobody.
"""

import argparse
import queue
import struct
import threading
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


class Prefetcher:
    def __init__(self, records: list[bytes]) -> None:
        self.batches: queue.Queue[torch.Tensor | None] = queue.Queue(maxsize=2)
        threading.Thread(target=self._fill, args=(records,), daemon=True).start()

    def _fill(self, records: list[bytes]) -> None:
        for record in records:
            self.batches.put(torch.tensor(struct.unpack("16f", record)).reshape(1, 16))
        self.batches.put(None)

    def __iter__(self) -> Iterator[torch.Tensor]:
        while (batch := self.batches.get()) is not None:
            yield batch


def shard(rank: int) -> list[bytes]:
    records = [struct.pack("16f", *([0.1 * number] * 16)) for number in range(12)]
    if rank == 2:
        records[5] = records[5][:40]  # the upload of this record broke off
    return records


def train(rank: int, world: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in Prefetcher(shard(rank)):
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    mp.spawn(train, args=(args.world, args.port), nprocs=args.world)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["first_step", "first_backward", "steady", "training"]
# after = ["First step done", "First backward done", ""]
# own_code = true
# calls = ['Queue\.get', '__iter__', 'queue']
# causes = ["dead-producer", "thread-stuck", "unknown"]
# ///
