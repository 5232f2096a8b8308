"""torch.compile of a model whose layers all differ: the first batch takes its time."""

import argparse
from itertools import pairwise

import lightning as L
import torch
from torch.utils.data import DataLoader


class Layers(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        sizes = [16 + number for number in range(layers + 1)]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
        return x


class Compiled(L.LightningModule):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.net = torch.compile(Layers(layers))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        out: torch.Tensor = self.net(batch).pow(2).mean()
        return out

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=8)
    args = parser.parse_args()
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=8, enable_progress_bar=False
    )
    trainer.fit(Compiled(args.layers), DataLoader(torch.randn(256, 16), batch_size=8))


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --layers $AMOUNT"
# outcome = "ok"
# limit = 400.0
# ///
