"""DataLoader workers inherit a lock that a thread of their rank holds, and not the thread.

The data set refreshes an index in the background; a worker that is forked meanwhile has the lock,
locked, and nobody who would release it (fsspec/filesystem_spec#835).
"""

import threading
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Indexed(Dataset[Any]):
    def __init__(self) -> None:
        self.samples = torch.randn(32, 16)
        self.fresh = threading.Lock()
        self.started = threading.Event()
        threading.Thread(target=self.refresh, daemon=True, name="refresh").start()
        self.started.wait()

    def refresh(self) -> None:
        with self.fresh:
            self.started.set()
            time.sleep(7200)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        with self.fresh:
            return self.samples[index]


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    for batch in DataLoader(Indexed(), batch_size=4, num_workers=1, multiprocessing_context="fork"):
        model(batch).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[0, 1]]
# steps = ["first_batch", "training", "data_module", "data_workers"]
# calls = ["DataLoader", "__getitem__"]
# ///
