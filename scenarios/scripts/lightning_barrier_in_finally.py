"""Rank 1's fourth step raises; `finally` has a barrier, so its error never comes out.

The other ranks reduce the gradients of a step that rank 1 never did.
"""

import lightning as L
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), index / 96)


class Small(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = self.layer(batch).pow(2).mean()
        if self.global_rank == 1 and batch_idx == 3:
            raise ValueError("loss is not finite")
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    try:
        trainer.fit(Small(), DataLoader(Samples(), batch_size=4))
    finally:
        if dist.is_initialized():
            dist.barrier()  # all results are written before anybody leaves
    trainer.print("done")


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "fit", "teardown",
#   "all_reduce", "barrier", "first_all_reduce", "first_barrier",
# ]
# after = ["Training finished", "First step done"]
# own_code = true
# calls = ['distributed\.\w+', "backward"]
# causes = [
#   "swallowed-exception", "rank-conditional-collective", "collective-mismatch", "gloo-mismatch",
# ]
# ///
