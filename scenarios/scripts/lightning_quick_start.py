"""The quick start of Lightning: an autoencoder, trained; Lightning starts its second rank."""

import os

import lightning as L
import torch
from torch import nn, optim, utils

encoder = nn.Sequential(nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 3))
decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 28 * 28))


class LitAutoEncoder(L.LightningModule):
    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        x = batch.view(batch.size(0), -1)
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> optim.Optimizer:
        return optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    L.seed_everything(1)
    loader = utils.data.DataLoader(torch.rand(512, 28, 28), batch_size=32)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", limit_train_batches=6, max_epochs=1
    )
    trainer.fit(LitAutoEncoder(encoder, decoder), loader)
    print("rank", trainer.global_rank, "of", trainer.world_size, "pid differs:", os.getpid() > 0)

# /// case
# command = "python train.py"
# outcome = "ok"
# ///
