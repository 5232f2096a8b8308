"""A Lightning training on two machines, two processes on each, started by itself."""

import warnings

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
torch.set_num_threads(1)


class Regression(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main():
    data = TensorDataset(torch.randn(256, 8), torch.randn(256, 1))
    trainer = pl.Trainer(
        accelerator="cpu",
        num_nodes=2,
        devices=2,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Regression(), DataLoader(data, batch_size=16))


if __name__ == "__main__":
    main()
