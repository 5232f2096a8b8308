"""Ranks that Lightning forks from the program itself, as in a notebook."""

import logging
import warnings

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
warnings.simplefilter("ignore")


class Base(pl.LightningModule):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.save_hyperparameters()


class Model(Base):
    def __init__(self, rate: float = 0.1, width: int = 4) -> None:
        super().__init__(width)
        self.net = torch.nn.Linear(width, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        x, y = batch
        return (self.net(x) - y).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.hparams["rate"])


class Data(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        torch.manual_seed(0)
        self.data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))

    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        return DataLoader(self.data, batch_size=4)


if __name__ == "__main__":
    pl.seed_everything(1, verbose=False)
    model, data = Model(), Data()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp_fork",
        max_steps=7,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)
    if trainer.is_global_zero:
        print(sorted(model.hparams.items()), trainer.global_step)
        print(f"{sum(p.sum().item() for p in model.parameters()):.4f}")

# /// case
# command = "python train.py"
# outcome = "ok"
# ///
