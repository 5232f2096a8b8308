"""Rank 0 downloads in prepare_data from a server that never answers; the others wait for it."""

import argparse
import urllib.request

import lightning as L
import torch
from torch.utils.data import DataLoader


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


class Corpus(L.LightningDataModule):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def prepare_data(self) -> None:
        urllib.request.urlretrieve(self.url, "corpus.txt")

    def train_dataloader(self) -> DataLoader[torch.Tensor]:
        return DataLoader(torch.randn(256, 16), batch_size=8)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    args = parser.parse_args()
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=20, enable_progress_bar=False
    )
    trainer.fit(Small(), Corpus(args.url))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --url $SERVICE/corpus.txt"
# world = "silent_service"
# culprits = [[0]]
# waiting = [1]
# steps = ["training", "prepare_data", "data_module", "fit"]
# calls = ['urllib\.request\.url']
# ///
