"""A callback reads trainer.log_dir on rank 0 alone, and that is a broadcast
(Lightning-AI/pytorch-lightning#18148).
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


class WritesPlots(L.Callback):
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if trainer.is_global_zero:
            self.folder = trainer.log_dir


def main() -> None:
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=20,
        callbacks=[WritesPlots()],
        enable_progress_bar=False,
    )
    trainer.fit(Small(), DataLoader(torch.randn(256, 16), batch_size=8))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[0]]
# culprits_by_stacks = [[0, 1]]
# steps = [
#   "training", "setup", "wrap", "broadcast", "barrier", "fit", "ddp", "first_broadcast",
#   "first_barrier",
# ]
# calls = ['distributed\.\w+', "DistributedDataParallel"]
# ///
