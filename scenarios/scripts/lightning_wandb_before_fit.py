"""W&B's server never answers: rank 0 logs its settings before it makes the Trainer."""

import argparse

import pytorch_lightning as L
import torch
from pytorch_lightning.loggers import WandbLogger
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
    parser = argparse.ArgumentParser()
    parser.add_argument("--project", default="small")
    args = parser.parse_args()
    logger = WandbLogger(project=args.project)
    logger.log_hyperparams({"layers": 1})
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=20,
        logger=logger,
        enable_progress_bar=False,
    )
    trainer.fit(Small(), DataLoader(torch.randn(256, 16), batch_size=8))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --project large"
# world = "silent_wandb"
# culprits = [[0]]
# waiting = [1]
# steps = ["wandb_logger", "wandb_init"]
# calls = ['wandb\.init']
# ///
