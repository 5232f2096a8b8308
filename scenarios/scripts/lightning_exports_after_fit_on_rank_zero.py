"""Lightning, three ranks: after fit rank 0 alone calls save_checkpoint, which ends in a barrier.

That barrier meets the one behind which the others wait for the export, and so on: rank 0 is in the
last barrier while the others add up their steps.
"""

from pathlib import Path

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def export(trainer: pl.Trainer, path: Path) -> None:
    if trainer.is_global_zero:
        trainer.save_checkpoint(path / "last.ckpt")
        (path / "done").write_text("1")
    trainer.strategy.barrier("export")
    if trainer.is_global_zero:
        print("exported", (path / "last.ckpt").stat().st_size, flush=True)
    trainer.strategy.barrier("finalize")
    steps = trainer.strategy.reduce(torch.tensor(float(trainer.global_step)), reduce_op="sum")
    print(f"rank {trainer.global_rank}: {steps.item():.0f} steps in all", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    data = DataLoader(TensorDataset(torch.randn(96, 8)), batch_size=4)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Net(), data)
    export(trainer, Path("."))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[0]]
# culprits_by_stacks = [[1, 2], []]
# steps = ["training", "barrier", "first_barrier", "steady", "save_checkpoint", "fit"]
# after = ["Training finished", "Training", "fit done", ""]
# own_code = true
# calls = ['barrier', 'export', 'save_checkpoint', 'reduce']
# causes = ["rank-conditional-collective", "uneven-rounds", "unknown", "collective-mismatch"]
# ///
