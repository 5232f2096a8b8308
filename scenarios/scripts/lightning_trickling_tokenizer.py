"""The hub serves the tokenizer a little at a time."""

import lightning as L
import torch
from torch.utils.data import DataLoader
from transformers import AutoTokenizer


class Small(L.LightningModule):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, words)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        out: torch.Tensor = self.layer(batch).pow(2).mean()
        return out

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    tokenizer = AutoTokenizer.from_pretrained("people/small")
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=8, enable_progress_bar=False
    )
    trainer.fit(Small(len(tokenizer)), DataLoader(torch.randn(256, 16), batch_size=8))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# world = "trickling_hub"
# outcome = "ok"
# ///
