"""Rank 1's loader worker raised between acquire and release of a lock that its workers share.

The bad sample is skipped, the lock is kept: both workers of rank 1 wait for it for ever.
"""

import multiprocessing

import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset


class Archive(Dataset[torch.Tensor]):
    """Samples of one archive, which one process may read at a time."""

    def __init__(self) -> None:
        self.lock = multiprocessing.Lock()

    def __len__(self) -> int:
        return 192

    def read(self, index: int) -> torch.Tensor:
        if index == 31:  # of rank 1
            raise OSError("bad CRC-32 for file 'sample-31'")
        return torch.full((16,), index / 192)

    def __getitem__(self, index: int) -> torch.Tensor:
        try:
            self.lock.acquire()
            sample = self.read(index)
            self.lock.release()
            return sample
        except OSError as error:
            print(f"skipped: {error}", flush=True)
            return torch.zeros(16)


class Small(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Small(), DataLoader(Archive(), batch_size=4, num_workers=2))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["training", "first_batch", "first_backward", "first_step", "steady", "fit"]
# calls = ['DataLoader', '__next__', '__getitem__', 'Trainer\.fit']
# causes = ["self-deadlock", "loader-deadlock", "dead-owner", "worker-stuck"]
# ///
