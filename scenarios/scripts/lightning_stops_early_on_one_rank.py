"""Only rank 1 gets the EarlyStopping callback: it was thought to be a thing for one rank, and asks
all ranks whether they would stop.
"""

import os

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping
from torch.utils.data import DataLoader


class Regression(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("val_loss", self.layer(batch).pow(2).mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.001)


def callbacks() -> list[Callback]:
    if int(os.environ.get("LOCAL_RANK", "0")) == 1:
        return [EarlyStopping("val_loss", patience=3)]
    return []


def main() -> None:
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=4,
        callbacks=callbacks(),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
    )
    loader = DataLoader(torch.randn(192, 16), batch_size=8)
    trainer.fit(Regression(), loader, DataLoader(torch.randn(48, 16), batch_size=8))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "teardown", "fit",
#   "all_reduce", "barrier", "broadcast", "first_all_reduce", "first_barrier", "first_broadcast",
# ]
# calls = ['distributed\.\w+', "backward", "reduce_boolean_decision"]
# causes = ["rank-conditional-collective", "collective-mismatch"]
# limit = 300
# ///
