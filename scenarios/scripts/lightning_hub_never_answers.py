"""The hub accepts and never answers: every rank sits in from_pretrained."""

import lightning as L
import torch
from torch.utils.data import DataLoader
from transformers import AutoTokenizer


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
    tokenizer = AutoTokenizer.from_pretrained("people/small")
    trainer = L.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_steps=20)
    trainer.fit(Small(), DataLoader(torch.randn(len(tokenizer), 16), batch_size=8))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# world = "silent_hub"
# culprits = [[0, 1]]
# steps = ["tokenizer"]
# calls = ['AutoTokenizer\.from_pretrained']
# ///
