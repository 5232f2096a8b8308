"""Rank 0 asks nvidia-smi for its version in a callback, and the driver does not answer."""

import subprocess

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


class DriverVersion(L.Callback):
    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.is_global_zero:
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv"]
            print(subprocess.run(query, capture_output=True, text=True).stdout)


def main() -> None:
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=20,
        callbacks=[DriverVersion()],
        enable_progress_bar=False,
    )
    trainer.fit(Small(), DataLoader(torch.randn(256, 16), batch_size=8))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# world = "silent_nvidia_smi"
# culprits = [[0]]
# waiting = [1]
# steps = ["training", "setup", "wrap", "fit", "ddp"]
# calls = ['subprocess\.run']
# ///
