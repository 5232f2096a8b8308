"""Lightning, three ranks: the workers of a loader meet before they read, at a Barrier for three;
rank 1 has cores for two workers.
"""

import multiprocessing
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, Dataset


class Pages(Dataset):
    """Pages of an index that the workers of a loader open at the same time."""

    def __init__(self) -> None:
        self.ready = multiprocessing.get_context("fork").Barrier(3)
        self.opened = False

    def __len__(self) -> int:
        return 96

    def __getitem__(self, number: int) -> torch.Tensor:
        if not self.opened:
            self.ready.wait()
            self.opened = True
        return torch.full((16,), float(number))


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 2)

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-4)


class Data(pl.LightningDataModule):
    def train_dataloader(self) -> DataLoader[Any]:
        cores = {0: 4, 1: 2, 2: 4}[self.trainer.global_rank]
        return DataLoader(
            Pages(), batch_size=4, num_workers=min(3, cores), multiprocessing_context="fork"
        )


def main() -> None:
    torch.set_num_threads(1)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=1,
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    trainer.fit(Model(), datamodule=Data())


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["training", "first_batch", "fit", "data_workers", "first_step"]
# calls = ['DataLoader', '__next__', '__getitem__', 'Trainer\.fit', 'wait']
# causes = ["barrier-of-too-many", "worker-stuck", "loader-deadlock"]
# says = ['[Bb]arrier|worker']
# ///
