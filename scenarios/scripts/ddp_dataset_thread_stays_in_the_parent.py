"""A data set reads ahead by a thread that its constructor starts; rank 1 of three has a loader with
two workers, which are forked without that thread and wait at its queue.
"""

import queue
import threading

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class ReadAhead(Dataset):
    def __init__(self, length: int) -> None:
        self.length, self.wanted, self.read = length, queue.Queue(), queue.Queue(maxsize=4)
        threading.Thread(target=self._read, name="read-ahead", daemon=True).start()

    def _read(self) -> None:
        while True:
            index = self.wanted.get()
            self.read.put(torch.full((8,), float(index)))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        self.wanted.put(index)
        return self.read.get()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    workers = 2 if rank == 1 else 0  # its node has more processors
    loader = DataLoader(ReadAhead(32), batch_size=4, num_workers=workers)
    total = torch.zeros(8)
    for batch in loader:
        total += batch.sum(0)
        dist.all_reduce(total)
    print(rank, total[0].item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["first_batch", "training", "dataloader", "workers", "script"]
# after = ["Process group ready", "DataLoader ready", ""]
# own_code = true
# calls = ['DataLoader', '__getitem__', 'get', 'next']
# causes = ["thread-lost-by-fork", "worker-stuck", "dead-producer", "lock-after-fork"]
# ///
