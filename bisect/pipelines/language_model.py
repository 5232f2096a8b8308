"""LLMModule: a causal language model as a LightningModule.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch

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
