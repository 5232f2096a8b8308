"""Healthy and slow: rank 1's samples come from tape, three seconds each, in the main process.

Every step takes twelve seconds, of which rank 0 waits nearly all in its backward.
"""

import argparse
import time

import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset

BATCH, SAMPLE = 4, 3.0


class Samples(Dataset[torch.Tensor]):
    def __init__(self, steps: int) -> None:
        self.rows, self.on_tape = steps * BATCH * 2, False

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.on_tape:
            time.sleep(SAMPLE)
        return torch.full((16,), index / self.rows)


class Small(L.LightningModule):
    def __init__(self, samples: Samples) -> None:
        super().__init__()
        self.samples = samples
        self.layer = torch.nn.Linear(16, 1)

    def train_dataloader(self) -> DataLoader[torch.Tensor]:
        self.samples.on_tape = self.global_rank == 1
        return DataLoader(self.samples, batch_size=BATCH)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Small(Samples(max(1, round(args.seconds / (BATCH * SAMPLE))))))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# ///
