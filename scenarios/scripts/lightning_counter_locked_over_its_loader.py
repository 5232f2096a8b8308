"""Rank 1 measures its loader with the counter locked, and the loader's worker counts.

Worker and rank wait for one another: the rank has the lock of the multiprocessing.Value in which
its worker wants to count the sample that the rank waits for. Rank 0 waits for rank 1 in fit.
"""

import multiprocessing
import time

import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset


class Counted(Dataset[torch.Tensor]):
    """Samples that count how often they were read, in whichever process."""

    def __init__(self) -> None:
        self.reads = multiprocessing.Value("q", 0)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.reads.get_lock():
            self.reads.value += 1
        return torch.full((16,), index / 64)


def throughput(samples: Counted) -> float:
    loader = iter(DataLoader(samples, batch_size=8, num_workers=1))
    with samples.reads.get_lock():  # nobody else shall count meanwhile
        began, before = time.monotonic(), samples.reads.value
        for _ in range(4):
            next(loader)
        return (samples.reads.value - before) / (time.monotonic() - began)


class Small(L.LightningModule):
    def __init__(self, samples: Counted) -> None:
        super().__init__()
        self.samples = samples
        self.layer = torch.nn.Linear(16, 1)

    def train_dataloader(self) -> DataLoader[torch.Tensor]:
        return DataLoader(self.samples, batch_size=8)

    def on_train_start(self) -> None:
        if self.global_rank == 1:
            print(f"{throughput(self.samples):.0f} samples a second", flush=True)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Small(Counted()))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[1]]
# waiting = [0]
# steps = ["fit", "training", "first_batch", "data_workers", "data_module", "setup", "wrap"]
# after = ["DataLoader workers started", "First batch there", ""]
# own_code = true
# calls = ['DataLoader', 'throughput', '__getitem__', 'on_train_start', 'get_lock', 'Lock']
# causes = ["deadlock", "worker-stuck", "self-deadlock", "child-process-stuck"]
# ///
