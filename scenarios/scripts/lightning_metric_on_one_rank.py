"""Rank 1 logs a synchronized metric once more than rank 0
(Lightning-AI/pytorch-lightning#19106).
"""

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


class Spikes(L.Callback):
    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *rest: object
    ) -> None:
        if trainer.global_rank == 1 and trainer.global_step == 2:
            pl_module.log("spikes", 1.0, sync_dist=True)


def main() -> None:
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=4,
        callbacks=[Spikes()],
        enable_progress_bar=False,
    )
    trainer.fit(Small(), DataLoader(torch.randn(256, 16), batch_size=8))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1]]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "teardown",
#   "all_reduce", "barrier", "fit", "first_all_reduce", "first_barrier",
# ]
# calls = ['distributed\.\w+', "backward"]
# ///
