"""Inputs that are made from a module's signature."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hangbisect.pipelines.module_inputs import make_input
from hypothesis import given
from hypothesis import strategies as st


class Tokens(torch.nn.Module):
    """Takes tokens as transformers names them."""

    def __init__(self, vocabulary: int = 10) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, 4)

    def forward(self, input_ids: Any = None, labels: Any = None, attention_mask: Any = None) -> Any:
        """Return what the tokens stand for."""
        return self.embed(input_ids)


class Bare(torch.nn.Module):
    """Has the layer that it is given."""

    def __init__(self, layer: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, thing: Any) -> Any:
        """Return what the layer does."""
        return self.layer(thing) if self.layer else thing


class Two(Bare):
    """Takes something else as well."""

    def forward(self, thing: Any, other: Any) -> Any:  # type: ignore[override]  # on purpose
        """Return both."""
        return thing, other


class Named(Bare):
    """Says which of its arguments is the one that matters, as transformers does."""

    main_input_name = "values"

    def forward(self, other: Any = None, values: Any = None) -> Any:
        """Return both."""
        return other, values


class Nothing(Bare):
    """Takes nothing."""

    def forward(self) -> Any:  # type: ignore[override]  # on purpose
        """Return nothing."""


class ByPosition(Bare):
    """Takes its argument by position alone."""

    def forward(self, thing: Any, /) -> Any:
        """Return it."""
        return thing


@given(st.integers(1, 4), st.integers(1, 40), st.integers(1, 30))
def test_tokens_are_within_the_embedding(rows: int, length: int, vocabulary: int) -> None:
    module = Tokens(vocabulary)
    made = make_input(module, rows, length, torch)
    assert list(made) == ["input_ids", "attention_mask"]
    assert made["input_ids"].shape == made["attention_mask"].shape == (rows, length)
    assert made["attention_mask"].all()
    assert module(**made).shape == (rows, length, 4)


def test_tokens_are_the_same_each_time() -> None:
    made = make_input(Tokens(), 2, 6, torch)
    assert made["input_ids"].tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 0, 1]]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (torch.nn.Linear(7, 2), (2, 8, 7)),
        (torch.nn.Conv2d(3, 2, 3), (2, 3, 8, 8)),
        (torch.nn.GRU(5, 2, batch_first=True), (2, 8, 5)),
        (torch.nn.LayerNorm((6,)), (2, 8, 6)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_anything_else_has_the_form_that_the_first_layer_takes(
    layer: torch.nn.Module, shape: tuple[int, ...]
) -> None:
    module = Bare(layer)
    made = make_input(module, 2, 8, torch)
    assert made["thing"].shape == shape
    module(**made)
    again = make_input(module, 2, 8, torch)
    assert torch.equal(made["thing"], again["thing"])


def test_making_it_leaves_torchs_random_numbers_as_they_were() -> None:
    module = Bare(torch.nn.Linear(7, 2))
    before = torch.get_rng_state()
    make_input(module, 2, 8, torch)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_argument_of_another_name_is_of_tokens_before_an_embedding() -> None:
    made = make_input(Bare(torch.nn.Embedding(5, 2)), 1, 6, torch)
    assert made["thing"].tolist() == [[0, 1, 2, 3, 4, 0]]


def test_the_name_that_transformers_gives_is_taken() -> None:
    assert list(make_input(Named(torch.nn.Linear(3, 2)), 1, 2, torch)) == ["values"]


def test_a_module_that_takes_nothing_gets_nothing() -> None:
    assert make_input(Nothing(), 2, 8, torch) == {}


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (Bare(), "no layer of its own tells what 'thing' is"),
        (Two(torch.nn.Linear(3, 2)), "takes 'other' as well, which cannot be guessed"),
        (ByPosition(torch.nn.Linear(3, 2)), "takes arguments by position alone"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_cannot_be_guessed_is_named(module: torch.nn.Module, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make_input(module, 2, 8, torch)
