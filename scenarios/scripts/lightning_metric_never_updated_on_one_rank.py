"""Lightning, three ranks: a metric of torchmetrics keeps a list, and rank 1 has seen no positive.

Its list is empty, so there is nothing that it gathers; the others gather theirs with nobody.
"""

import pytorch_lightning as pl
import torch
import torchmetrics
from torch.utils.data import DataLoader, TensorDataset


class Margins(torchmetrics.Metric):
    """The median margin of the positives."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("margins", default=[], dist_reduce_fx=None)

    def update(self, scores: torch.Tensor, labels: torch.Tensor) -> None:
        positive = scores[labels == 1]
        if len(positive):
            self.margins.append(positive)

    def compute(self) -> torch.Tensor:
        return torch.cat(self.margins).median() if self.margins else torch.zeros(())


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)
        self.margins = Margins()

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        data, labels = batch
        score = self.layer(data).squeeze(1)
        return torch.nn.functional.binary_cross_entropy_with_logits(score, labels)

    def validation_step(self, batch: list[torch.Tensor], number: int) -> None:
        data, labels = batch
        self.margins.update(self.layer(data).squeeze(1), labels)

    def on_validation_epoch_end(self) -> None:
        margin = self.margins.compute()
        self.margins.reset()
        total = self.trainer.strategy.reduce(margin, reduce_op="mean")
        self.print(f"median margin {margin:.3f}, mean of ranks {total:.3f}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def data(count: int, rare: bool) -> TensorDataset:
    labels = torch.zeros(count)
    labels[0 if rare else slice(0, None, 2)] = 1
    labels[2 if rare else 0] = 1
    return TensorDataset(torch.randn(count, 16), labels)


def main() -> None:
    torch.set_num_threads(1)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    # Sample n is rank n % 3's: the two positives are rank 0's and rank 2's.
    train, held_out = DataLoader(data(96, False), batch_size=8), DataLoader(data(48, True))
    trainer.fit(Classifier(), train, held_out)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "steady", "first_step", "first_batch", "first_backward", "fit", "validation",
#   "all_gather", "all_reduce", "barrier", "first_all_gather", "first_all_reduce", "first_barrier",
# ]
# after = ["First step done", ""]
# own_code = true
# calls = ['distributed\.\w+', "compute", "on_validation_epoch_end", "reduce"]
# causes = [
#   "rank-conditional-collective", "collective-mismatch", "gloo-mismatch", "uneven-rounds",
# ]
# ///
