"""W&B's server never answers: rank 0 sits in wandb.init inside fit, where the logger is first read.

`python train.py`: Lightning starts rank 1 itself (wandb/wandb#5017, EleutherAI/bergson PR 249).
"""

import lightning as L
import torch
from lightning.pytorch.loggers import WandbLogger
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


def main() -> None:
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=20,
        logger=WandbLogger(project="small"),
        enable_progress_bar=False,
    )
    trainer.fit(Small(), DataLoader(torch.randn(256, 16), batch_size=8))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# world = "silent_wandb"
# culprits = [[0]]
# waiting = [1]
# steps = ["wandb_logger", "setup", "training", "wandb_init", "fit"]
# calls = ['wandb\.init']
# ///
