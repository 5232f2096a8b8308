"""The rank computes with OpenMP, and so do its forked DataLoader workers: they wait for threads
that exist in the rank alone (pytorch/pytorch#45198).
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset[Any]):
    def __init__(self) -> None:
        pictures = torch.rand(3000, 3000)
        self.mean = pictures.exp().sum()

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        torch.set_num_threads(2)
        picture = torch.rand(1000, 1000).exp()
        return (picture / self.mean)[0, :16]


def main() -> None:
    torch.set_num_threads(2)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    loader = DataLoader(Augmented(), batch_size=4, num_workers=1, multiprocessing_context="fork")
    for batch in loader:
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
