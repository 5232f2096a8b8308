"""Lightning, three ranks: rank 1 finds no file to validate on, and sets limit_val_batches to 0.

The others set up their validation before they train, with a barrier; rank 1 trains at once.
"""

import os

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).pow(2).mean()

    def validation_step(self, batch, index):
        self.log("val", self.layer(batch[0]).pow(2).mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def validation_files(rank: int) -> list[str]:
    return [] if rank == 1 else [f"val-{rank}.pt"]  # two files for three ranks


def main() -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    data = DataLoader(TensorDataset(torch.randn(96, 8)), batch_size=4)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=3,
        limit_val_batches=1.0 if validation_files(rank) else 0,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Net(), data, DataLoader(TensorDataset(torch.randn(24, 8)), batch_size=4))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 2], []]
# steps = [
#   "training", "steady", "validation", "fit", "first_step", "first_backward", "sanity_check",
# ]
# after = ["First step done", "First batch done", "First backward done", ""]
# own_code = true
# calls = ['backward', 'validat', 'reduce', 'barrier', 'fit', 'all_reduce', 'broadcast']
# causes = ["rank-conditional-collective", "collective-mismatch", "uneven-rounds", "other-round"]
# ///
