"""Each rank saves a checkpoint when its own loss is the best so far: rank 1's is, the others' not.

`Trainer.save_checkpoint` has a barrier for all ranks at its end.
"""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regressor(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        features, target = batch
        # Data of rank 1 become easier from the third batch on.
        noise = 0.0 if self.global_rank == 1 and batch_idx > 1 else 1.0 + batch_idx
        return nn.functional.mse_loss(self.net(features), target) * noise

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class KeepTheBest(L.Callback):
    def __init__(self) -> None:
        self.best = float("inf")

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: dict[str, torch.Tensor],
        batch: list[torch.Tensor],
        batch_idx: int,
    ) -> None:
        loss = float(outputs["loss"])
        if loss < self.best:
            if batch_idx > 0:
                trainer.save_checkpoint("best.ckpt")
            self.best = loss


def main() -> None:
    torch.manual_seed(7)
    data = TensorDataset(torch.randn(480, 8), torch.randn(480, 1) + 5)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        callbacks=[KeepTheBest()],
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Regressor(), DataLoader(data, batch_size=16))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "fit",
#   "all_reduce", "barrier", "first_all_reduce", "first_barrier",
# ]
# calls = ['distributed\.\w+', "backward", "save_checkpoint"]
# causes = ["rank-conditional-collective", "collective-mismatch", "gloo-mismatch"]
# ///
