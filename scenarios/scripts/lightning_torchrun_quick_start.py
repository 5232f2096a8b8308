"""A LightningModule with validation, a checkpoint and a worker, under torchrun."""

import argparse

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader


class Regression(pl.LightningModule):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, hidden), torch.nn.Linear(hidden, 1))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.net(batch).pow(2).mean()

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("val_loss", self.net(batch).pow(2).mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=8)
    args = parser.parse_args()
    pl.seed_everything(7)
    data = DataLoader(torch.randn(128, 16), batch_size=8, num_workers=1)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        limit_train_batches=4,
        callbacks=[ModelCheckpoint(monitor="val_loss")],
        enable_progress_bar=False,
    )
    trainer.fit(Regression(args.hidden), data, data)
    trainer.print("epochs", trainer.current_epoch)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --hidden 12"
# outcome = "ok"
# ///
