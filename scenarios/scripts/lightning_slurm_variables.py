"""SLURM_NTASKS=2 in the environment and no srun: Lightning waits for a task that nobody starts
(Lightning-AI/pytorch-lightning#6206, #10098).
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


def main() -> None:
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=20, enable_progress_bar=False
    )
    trainer.fit(Small(), DataLoader(torch.randn(256, 16), batch_size=8))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1]]
# waiting = [0]
# steps = ["training", "process_group", "script", "launch", "fit"]
# calls = ["init_process_group", "^$"]
# [environment]
# SLURM_NTASKS = "2"
# SLURM_JOB_NAME = "train"
# SLURM_PROCID = "0"
# SLURM_LOCALID = "0"
# SLURM_NODEID = "0"
# SLURM_JOB_ID = "77"
# SLURM_NTASKS_PER_NODE = "2"
# SLURM_JOB_NUM_NODES = "1"
# MASTER_ADDR = "127.0.0.1"
# ///
