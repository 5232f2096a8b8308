"""Healthy and slow: rank 1's loader worker has its first shard unpacked by a program, for a minute.

The worker waits for the program without a word, the rank for its worker, the others for the rank.
"""

import argparse
import subprocess
import sys

import pytorch_lightning as L
import torch
from torch.utils.data import DataLoader, Dataset

UNPACK = """
import bz2, sys, time
end, data = time.monotonic() + float(sys.argv[1]), bytes(200_000)
while time.monotonic() < end:
    data = bz2.decompress(bz2.compress(data))
"""


class Shards(Dataset[torch.Tensor]):
    def __init__(self, seconds: float) -> None:
        self.seconds, self.ready = seconds, False

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self.ready:
            subprocess.run([sys.executable, "-c", UNPACK, str(self.seconds)], check=True)
            self.ready = True
        return torch.full((16,), float(index))


class Small(L.LightningModule):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.layer, self.seconds = torch.nn.Linear(16, 1), seconds

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch).pow(2).mean()
        return loss

    def train_dataloader(self) -> DataLoader:
        shards = Shards(self.seconds if self.global_rank == 1 else 0.2)
        return DataLoader(shards, batch_size=8, num_workers=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_steps=2,
        enable_progress_bar=False,
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(Small(args.seconds))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 300.0
# ///
