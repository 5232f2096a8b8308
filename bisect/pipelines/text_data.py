"""TextData: lines of a text file as a LightningDataModule.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import os
from typing import Any

import pytorch_lightning as pl
from torch.utils.data import DataLoader

from .text_blocks import Collate, CollatePacked, Texts, split

LENGTH = 64  # tokens a text
LARGEST = 64 << 20  # bytes read of a file: enough to train on, and no surprise for the memory


class TextData(pl.LightningDataModule):
    """Batches of `path`'s lines, for ever: training ends by its number of steps."""

    def __init__(
        self,
        path: str,
        tokenizer: Any,
        batch_size: int,
        num_workers: int,
        worker_start: str,
        pin_memory: bool = False,
        packing: bool = False,
    ) -> None:
        """Read nothing yet."""
        super().__init__()
        self.path = path
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.worker_start = worker_start
        self.pin_memory = pin_memory
        self.packing = packing
        self.texts: Texts

    def prepare_data(self) -> None:
        """See on rank 0 alone that there is something to read."""
        if not os.path.getsize(self.path):
            raise ValueError(f"{self.path} is empty: there is no text to train on")

    def setup(self, stage: str) -> None:
        """Read the texts on every rank; tokenize a few, as real jobs do before they fork."""
        with open(self.path, encoding="utf-8", errors="replace") as file:
            lines = split(file.read(LARGEST))
        self.texts = Texts(lines)
        self.tokenizer(lines[:64])

    def train_dataloader(self) -> Any:
        """Return the loader of this rank; Lightning gives it its share of the texts."""
        return DataLoader(
            self.texts,
            batch_size=self.batch_size,
            shuffle=True,
            drop_last=True,
            collate_fn=(CollatePacked if self.packing else Collate)(self.tokenizer, LENGTH),
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            multiprocessing_context=self.worker_start if self.num_workers else None,
        )
