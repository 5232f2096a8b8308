"""Lightning: after fit rank 1 of three alone tests the best model, and all hear its score.

trainer.test() is for all ranks: it meets them as it begins. The others are in the broadcast.
"""

import pytorch_lightning as L
import torch
from torch.utils.data import DataLoader

TESTS = 1  # rank, which has the test data


class Regression(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).pow(2).mean()

    def test_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("test_loss", self.layer(batch).pow(2).mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def loader(rows: int) -> DataLoader:
    return DataLoader(torch.randn(rows, 16), batch_size=4)


def score(trainer: L.Trainer, model: Regression) -> float:
    return trainer.test(model, loader(32), verbose=False)[0]["test_loss"]


def main() -> None:
    torch.set_num_threads(1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    model = Regression()
    trainer.fit(model, loader(96))
    found = [score(trainer, model) if trainer.global_rank == TESTS else None]
    torch.distributed.broadcast_object_list(found, src=TESTS)
    print(f"rank {trainer.global_rank}: {found[0]}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[]]
# waiting = [0, 2]
# steps = [
#   "training", "teardown", "fit", "test", "broadcast_object_list", "first_broadcast_object_list",
#   "evaluation", "steady", "broadcast", "first_broadcast",
# ]
# after = [
#   "Training finished", "First step done",
#   "Fit done", "First broadcast_object_list done", "",
# ]
# own_code = true
# calls = ['Trainer\.test', 'distributed\.\w+', 'score', 'broadcast']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# ///
