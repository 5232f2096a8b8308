"""The rank that Lightning starts runs the script again, and opens a named pipe that has been read.

Rank 0 got its labels before; in the foreground it waits in init_process_group.
"""

import argparse
import os
from pathlib import Path

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


def labels(pipe: Path) -> int:
    return len(pipe.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--labels", type=Path, required=True)
    args = parser.parse_args()
    found = labels(args.labels) if "LOCAL_RANK" in os.environ else 1
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=20, enable_progress_bar=False
    )
    trainer.fit(Small(), DataLoader(torch.randn(256 * found, 16), batch_size=8))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --labels $FIFO"
# world = "unopened_fifo"
# culprits = [[1]]
# waiting = [0]
# steps = ["arguments", "data_module", "trainer", "process_group", "launch"]
# after = ["Args parsed"]
# own_code = true
# calls = ["open", "labels", "read_bytes"]
# ///
