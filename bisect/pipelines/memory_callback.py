"""MemoryLoggingCallback: memory of the rank, to its lines and to the logger.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil
import pytorch_lightning as pl
import torch

EVERY = 50  # steps between two values for the logger (Lightning's own log_every_n_steps)
MIB = 1 << 20


class MemoryLoggingCallback(pl.Callback):
    """Logs resident memory, and CUDA's where it is in use.

    To the logger at the start, after the first step, every EVERY steps and at the end; to this
    rank's lines at the same moments, but for those in between.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        """Print lines through `say`."""
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
        found = self.measure()
        cuda = (
            f"CUDA {found['memory/cuda_allocated_mib']:.0f} MiB allocated, "
            f"{found['memory/cuda_reserved_mib']:.0f} MiB reserved"
            if "memory/cuda_allocated_mib" in found
            else "CUDA not in use"
        )
        return f"Memory {moment}: RSS {found['memory/rss_mib']:.0f} MiB, {cuda}"

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
