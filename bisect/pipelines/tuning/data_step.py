"""Step 10: texts as rows of tokens, all of the same length."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..model_steps import TEXT
from ..text_blocks import EPOCH, split

if TYPE_CHECKING:
    from ...rank.context import Context

LARGEST = 64 << 20  # bytes read of a file


class Rows:
    """Rows of tokens as examples, over and over, so that an epoch is never short."""

    def __init__(self, rows: list[list[int]]) -> None:
        """Hold `rows`, of which there must be one at least."""
        self._rows = rows

    def __len__(self) -> int:
        return max(EPOCH, len(self._rows))

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        row = self._rows[index % len(self._rows)]
        return {"input_ids": row, "labels": row}


def data(context: Context) -> Rows:
    """Return rows of --sequence-length tokens, one after another, without padding."""
    path = os.path.abspath(context.args.data) if context.args.data else TEXT
    context.about_to("open", f" with {path}")
    with open(path, encoding="utf-8", errors="replace") as file:
        texts = split(file.read(LARGEST))
    if not texts:
        raise ValueError(f"{path} is empty: there is no text to train on")
    tokenizer = context.products["tokenizer"]
    context.about_to(f"transformers.{type(tokenizer).__name__}.__call__")
    rows = rows_of(tokenizer(texts)["input_ids"], context.args.sequence_length)
    context.say(f"Data: {len(texts):,} texts make {len(rows):,} rows")
    return Rows(rows)


def rows_of(texts: list[list[int]], length: int) -> list[list[int]]:
    """Return the tokens of all texts in rows of `length`, one row at least: repeated if need be."""
    tokens = [token for text in texts for token in text]
    if not tokens:
        raise ValueError("the texts have no tokens")
    while len(tokens) < length:
        tokens += tokens
    return [tokens[at : at + length] for at in range(0, len(tokens) - length + 1, length)]


def batch_of(rows: list[dict[str, list[int]]]) -> dict[str, Any]:
    """Return a batch of rows as tensors."""
    import torch

    return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
