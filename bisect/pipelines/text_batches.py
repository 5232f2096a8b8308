"""Texts and batches of tokens: what a training reads.

Workers of a DataLoader that are not forked import this module anew, so it has no library at its
top; torch's DataLoader takes any object that can be counted and indexed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

IGNORED = -100  # the label that the loss leaves out (torch.nn.CrossEntropyLoss)
EPOCH = 1 << 16  # examples an epoch, at least: a new epoch would start new workers


class Texts:
    """Texts by index, from the start again after the last, so that an epoch is never short."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Hold `texts`, of which there must be one at least."""
        if not texts:
            raise ValueError("there is no text to train on")
        self._texts = texts

    def __len__(self) -> int:
        return max(EPOCH, len(self._texts))

    def __getitem__(self, index: int) -> str:
        return self._texts[index % len(self._texts)]


class Collate:
    """Makes a batch of texts: tokenized where it runs (in a worker, if there are any)."""

    def __init__(self, tokenizer: Any, length: int) -> None:
        """Cut and fill every text to `length` tokens."""
        self._tokenizer = tokenizer
        self._length = length

    def __call__(self, texts: list[str]) -> dict[str, Any]:
        """Return ids, attention mask and labels, each of shape (texts, length)."""
        batch = self._tokenizer(
            texts,
            padding="max_length",
            truncation=True,
            max_length=self._length,
            return_tensors="pt",
        )
        ids, mask = batch["input_ids"], batch["attention_mask"]
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "labels": ids.masked_fill(mask == 0, IGNORED),
        }


class CollatePacked:
    """Makes a batch of texts without any padding: all of them one after another, cut into rows.

    How many rows that makes depends on the texts, so ranks get batches of different sizes.
    """

    def __init__(self, tokenizer: Any, length: int) -> None:
        """Make rows of `length` tokens."""
        self._tokenizer = tokenizer
        self._length = length

    def __call__(self, texts: list[str]) -> dict[str, Any]:
        """Return ids, attention mask and labels, each of shape (rows, length), one row at least."""
        end = self._tokenizer.eos_token_id
        tokens: list[int] = []
        for text in self._tokenizer(texts)["input_ids"]:
            tokens += text if end is None else [*text, end]
        while len(tokens) < self._length:
            tokens += tokens
        whole = len(tokens) // self._length * self._length
        rows = [tokens[at : at + self._length] for at in range(0, whole, self._length)]
        batch = self._tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        return {
            "input_ids": batch["input_ids"],
            "attention_mask": batch["attention_mask"],
            "labels": batch["input_ids"],
        }


def split_lines(text: str) -> list[str]:
    """Return the lines of `text` that hold something."""
    return [line.strip() for line in text.splitlines() if line.strip()]


class TokenRows:
    """Rows of tokens as examples, over and over, so that an epoch is never short."""

    def __init__(self, rows: list[list[int]]) -> None:
        """Hold `rows`, of which there must be one at least."""
        self._rows = rows

    def __len__(self) -> int:
        return max(EPOCH, len(self._rows))

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        row = self._rows[index % len(self._rows)]
        return {"input_ids": row, "labels": row}


def cut_rows(texts: list[list[int]], length: int) -> list[list[int]]:
    """Return the tokens of all texts in rows of `length`, one row at least: repeated if need be."""
    tokens = [token for text in texts for token in text]
    if not tokens:
        raise ValueError("the texts have no tokens")
    while len(tokens) < length:
        tokens += tokens
    return [tokens[at : at + length] for at in range(0, len(tokens) - length + 1, length)]


def collate_rows(rows: list[dict[str, list[int]]]) -> dict[str, Any]:
    """Return a batch of rows as tensors."""
    import torch

    return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
