"""Lightning: a callback averages the weights over all ranks, each N samples that its rank has seen.

Rank 1's batches are larger, and by its own count it is due a step before the others: it gathers,
and they are in the next step already.
"""

import pytorch_lightning as L
import torch
from torch.utils.data import DataLoader


class Small(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch).pow(2).mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class WeightAverage(L.Callback):
    def __init__(self, every: int) -> None:
        self.every, self.seen, self.average = every, 0, None

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: object,
        batch: torch.Tensor,
        batch_idx: int,
    ) -> None:
        self.seen += len(batch)
        if self.seen >= self.every:
            self.seen = 0
            flat = torch.cat([p.detach().flatten() for p in pl_module.parameters()])
            self.average = pl_module.all_gather(flat).mean(0)


class Data(L.LightningDataModule):
    def train_dataloader(self) -> DataLoader:
        size = 12 if self.trainer.global_rank == 1 else 8
        return DataLoader(torch.randn(size * 10, 16), batch_size=size)


def main() -> None:
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_steps=9,
        use_distributed_sampler=False,
        callbacks=[WeightAverage(every=48)],
        enable_progress_bar=False,
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(Small(), datamodule=Data())


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "fit",
#   "first_all_gather", "all_gather", "barrier", "teardown",
# ]
# calls = ['distributed\.\w+', 'all_gather', 'backward']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# limit = 300
# ///
