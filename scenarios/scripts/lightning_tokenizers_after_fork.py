"""The tokenizer's threads were used before DataLoader forks its workers, and are used there again
(huggingface/tokenizers#187); TOKENIZERS_PARALLELISM=true takes the guard away.
"""

from typing import Any

import lightning as L
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import DataLoader

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs"]


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


def tokenizer() -> Any:
    made = Tokenizer(models.WordLevel(unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator([WORDS], trainers.WordLevelTrainer(special_tokens=["?"]))
    made.enable_padding(length=16)
    made.encode_batch([" ".join(WORDS)] * 64)
    return made


class Encode:
    def __init__(self) -> None:
        self.tokenizer = tokenizer()

    def __call__(self, texts: list[str]) -> torch.Tensor:
        return torch.tensor([e.ids[:16] for e in self.tokenizer.encode_batch(texts)]).float()


def main() -> None:
    texts = [" ".join(WORDS[i % 5 :]) for i in range(256)]
    loader = DataLoader(
        texts,  # type: ignore[arg-type, unused-ignore]
        batch_size=8,
        num_workers=1,
        collate_fn=Encode(),
        multiprocessing_context="fork",
    )
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=20, enable_progress_bar=False
    )
    trainer.fit(Small(), loader)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# environment = {TOKENIZERS_PARALLELISM = "true"}
# culprits = [[0, 1]]
# steps = ["first_batch", "training", "data_workers", "fit"]
# calls = ["DataLoader", "encode_batch"]
# ///
