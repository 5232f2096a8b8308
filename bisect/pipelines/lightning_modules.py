"""LLMModule, a causal language model as a LightningModule; TextData, lines of a text file as a
LightningDataModule; and MemoryLoggingCallback, which writes the memory of the rank to its lines
and to the logger.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from ..base.words import MIB, format_bytes
from .shared_steps import Collate, CollatePacked, Texts, split_lines

LEARNING_RATE = 3e-4


class LLMModule(pl.LightningModule):
    """Trains `model`, which returns its loss when it is given labels, as transformers' do."""

    def __init__(self, model: torch.nn.Module, compiled: bool = False) -> None:
        """Wrap `model`, through torch.compile if it is to be `compiled`: at its first batch."""
        super().__init__()
        self.model = model
        if compiled:
            self.model.compile()

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Return the loss of one batch."""
        loss: torch.Tensor = self.model(**batch).loss
        self.log("train/loss", loss.detach())
        return loss

    def configure_optimizers(self) -> Any:
        """Return AdamW over all parameters."""
        return torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE)


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
            lines = split_lines(file.read(LARGEST))
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


EVERY = 50  # steps between two values for the logger (Lightning's own log_every_n_steps)


class MemoryLoggingCallback(pl.Callback):
    """Logs resident memory, and CUDA's where it is in use.

    To the logger at the start, after the first step, every EVERY steps and at the end; to this
    rank's lines at the same moments, but for those in between.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        """Print lines through `say`."""
        import psutil  # not at the top: the step of this callback imports it

        self._say = say
        self._process = psutil.Process()

    def measure(self) -> dict[str, float]:
        """Return MiB by name."""
        found = {"memory/rss_mib": self._process.memory_info().rss / MIB}
        if torch.cuda.is_initialized():
            found["memory/cuda_allocated_mib"] = torch.cuda.memory_allocated() / MIB
            found["memory/cuda_reserved_mib"] = torch.cuda.memory_reserved() / MIB
        return found

    def in_words(self, moment: str) -> str:
        """Return a line that says how much is used."""
        found = {name: format_bytes(mib * MIB) for name, mib in self.measure().items()}
        cuda = (
            f"CUDA {found['memory/cuda_allocated_mib']} allocated, "
            f"{found['memory/cuda_reserved_mib']} reserved"
            if "memory/cuda_allocated_mib" in found
            else "CUDA not in use"
        )
        return f"Memory {moment}: RSS {found['memory/rss_mib']}, {cuda}"

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Once model and optimizer are in place."""
        self._log("before training", trainer)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """After each step."""
        if trainer.global_step == 1:
            self._log("after the first step", trainer)
        elif trainer.global_step % EVERY == 0:
            self._log(None, trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After the last step."""
        self._log("at the end of training", trainer)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the voice behind: a process that Lightning spawns is no rank of ours."""
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Measure the process that this is, in silence."""
        self.__init__(lambda line: None)  # type: ignore[misc]

    def _log(self, moment: str | None, trainer: pl.Trainer) -> None:
        if moment:
            self._say(self.in_words(moment))
        for logger in trainer.loggers:  # dummies on every rank but 0
            logger.log_metrics(self.measure(), step=trainer.global_step)
