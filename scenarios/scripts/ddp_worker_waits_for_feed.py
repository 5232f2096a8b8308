"""A DataLoader worker of rank 1 opens a named pipe that nobody writes to."""

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Fed(Dataset[Any]):
    def __init__(self, feed: Path | None) -> None:
        self.feed = feed

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        noise = len(self.feed.read_bytes()) if self.feed else 0
        return torch.full((16,), float(index + noise))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--feed", type=Path)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    data = Fed(args.feed if dist.get_rank() == 1 else None)
    for batch in DataLoader(data, batch_size=4, num_workers=2):
        model(batch).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --feed $FIFO"
# world = "unopened_fifo"
# culprits = [[1]]
# waiting = [0]
# steps = ["first_batch", "training", "data_module", "data_workers"]
# calls = ["DataLoader", "__getitem__", "open"]
# ///
