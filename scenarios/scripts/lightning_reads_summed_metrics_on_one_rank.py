"""Lightning: a callback writes its table on rank 1 alone, and reads `trainer.callback_metrics`.

The value was logged with sync_dist for the epoch, and who reads it sums it over all ranks: with a
barrier first, which meets that of the others behind the table, and rank 1 is one ahead from there.
"""

import pytorch_lightning as L
import torch
from torch.utils.data import DataLoader


class Regression(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = self.layer(batch).pow(2).mean()
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Table(L.Callback):
    """Keeps a table of what was logged, a row each second epoch, in a file that all ranks read."""

    def __init__(self, writer: int) -> None:
        self.writer = writer

    def _row(self, trainer: L.Trainer) -> str:
        return " ".join(f"{name}={value:.4f}" for name, value in trainer.callback_metrics.items())

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.current_epoch % 2 == 0:
            return
        if trainer.global_rank == self.writer:
            with open("table.txt", "a") as file:
                print(trainer.current_epoch, self._row(trainer), file=file)
        trainer.strategy.barrier("table")


def main() -> None:
    torch.set_num_threads(1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=4,
        strategy="ddp",
        max_epochs=4,
        callbacks=[Table(writer=1)],
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    trainer.fit(Regression(), DataLoader(torch.randn(160, 16), batch_size=4))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[1]]
# waiting = [0, 2, 3]
# culprits_by_stacks = [[]]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "fit", "teardown",
#   "all_reduce", "first_all_reduce", "barrier",
# ]
# after = ["First step done", "First backward done", ""]
# own_code = true
# calls = ['distributed\.\w+', 'callback_metrics', '_row', 'on_train_epoch_end', 'compute', 'fit']
# causes = ["rank-conditional-collective", "collective-mismatch", "metric-lock"]
# ///
