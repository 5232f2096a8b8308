"""A callback of rank 1 fails, catches that, and waits before it would try again."""

import time

import lightning as L
import torch
from torch.utils.data import DataLoader


class Small(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Statistics(L.Callback):
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        known = {0: 0.5}
        while True:
            try:
                pl_module.mean = known[trainer.global_rank]
                return
            except KeyError as error:
                print(f"no statistics of {error} yet")
                time.sleep(3600)


def main() -> None:
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=20,
        callbacks=[Statistics()],
        enable_progress_bar=False,
    )
    trainer.fit(Small(), DataLoader(torch.randn(256, 16), batch_size=8))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1]]
# waiting = [0]
# steps = ["training", "first_batch", "setup", "wrap", "fit", "ddp"]
# calls = ["time.sleep", 'Trainer\.fit']
# ///
