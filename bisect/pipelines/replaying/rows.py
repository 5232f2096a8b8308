"""Samples packed into one row, and rows of one sample each: one form of an input as the other.

Of inputs as transformers names them: input_ids and attention_mask of shape (samples, length), or
input_ids of shape (1, tokens) whose position_ids begin again at each sample. What else has a value
for each token goes along.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from ..text_blocks import IGNORED

_IDS, _MASK, _POSITIONS, _LABELS = "input_ids", "attention_mask", "position_ids", "labels"
# What says where samples end; made anew from position_ids by transformers.
_ENDS = (
    *("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"),
    "packed_seq_lens",
)


@dataclass(frozen=True)
class Tokens:
    """Where the tokens of all samples are, in their order: in these rows, at these places."""

    shape: tuple[int, ...]  # (rows, length)
    rows: Any
    places: Any

    def of(self, value: Any) -> Any:
        """Return of a tensor of shape (rows, length, ...) the part of each token, (tokens, ...);
        of any other the tensor itself.
        """
        if tuple(value.shape[:2]) != self.shape:
            return value
        return value[self.rows.to(value.device), self.places.to(value.device)]


def tokens_in(kwargs: Mapping[str, Any]) -> Tokens | None:
    """Return where the tokens of an input are, None where it is none that has any."""
    ids, mask = kwargs.get(_IDS), kwargs.get(_MASK)
    if not (isinstance(ids, torch.Tensor) and ids.dim() == 2):
        return None
    if not (isinstance(mask, torch.Tensor) and mask.shape == ids.shape):
        mask = torch.ones_like(ids)
    rows, places = mask.nonzero(as_tuple=True)
    return Tokens(tuple(ids.shape), rows, places)


def packed(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the input with all samples in one row, None if it is none of this form or is so
    already.
    """
    found = tokens_in(kwargs)
    if found is None or found.shape[0] < 2:
        return None
    made = {
        name: found.of(value).unsqueeze(0) if _is_by_token(value, found) else value
        for name, value in kwargs.items()
        if name not in (_MASK, _POSITIONS, *_ENDS)
    }
    lengths = torch.bincount(found.rows, minlength=found.shape[0])
    positions = torch.cat([torch.arange(int(n)) for n in lengths])
    made[_POSITIONS] = positions.unsqueeze(0).to(kwargs[_IDS].device)
    if _LABELS in made:  # no sample's first token is foretold by the one before it
        made[_LABELS] = made[_LABELS].masked_fill(made[_POSITIONS] == 0, IGNORED)
    return made


def unpacked(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the input with a row for each sample, padded at the end; None as for `packed`."""
    lengths = _lengths(kwargs)
    if lengths is None or len(lengths) < 2:
        return None
    found = tokens_in(kwargs)
    made: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in (_MASK, _POSITIONS, *_ENDS):
            continue
        made[name] = value
        if found is not None and _is_by_token(value, found):
            parts = torch.split(value[0], lengths)
            filling = IGNORED if name == _LABELS else 0
            made[name] = torch.nn.utils.rnn.pad_sequence(parts, True, filling)
    made[_MASK] = torch.nn.utils.rnn.pad_sequence(
        [torch.ones(n, dtype=torch.long) for n in lengths], True
    ).to(kwargs[_IDS].device)
    return made


def _is_by_token(value: Any, found: Tokens) -> bool:
    return isinstance(value, torch.Tensor) and tuple(value.shape[:2]) == found.shape


def _lengths(kwargs: Mapping[str, Any]) -> list[int] | None:
    """Return how long the samples of a packed row are, None if it is none."""
    ids, positions = kwargs.get(_IDS), kwargs.get(_POSITIONS)
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.shape[0] != 1:
        return None
    if not isinstance(positions, torch.Tensor) or positions.shape != ids.shape:
        return None
    begins = (positions[0] == 0).nonzero().flatten().tolist()
    if begins[:1] != [0]:
        return None
    return [end - begin for begin, end in pairwise([*begins, ids.shape[1]])]
