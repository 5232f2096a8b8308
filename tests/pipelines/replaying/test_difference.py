"""How much an output differs from another."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hangbisect.pipelines.module_call import TensorDifference, compare_outputs, walk_tensors
from hangbisect.pipelines.module_inputs import find_tokens, pack_samples
from hypothesis import given
from hypothesis import strategies as st

NAN, INF = math.nan, math.inf
VALUES = st.lists(st.floats(width=32), max_size=8)
PAIRS = st.integers(0, 8).flatmap(
    lambda n: st.tuples(*[st.lists(st.floats(width=32), min_size=n, max_size=n)] * 2)
)


@given(VALUES)
def test_an_output_does_not_differ_from_itself(values: list[float]) -> None:
    assert compare_outputs(torch.tensor(values), torch.tensor(values)) == TensorDifference(0.0, "")


@given(PAIRS)
def test_it_is_the_same_from_both_sides_and_never_less_than_nothing(
    pair: tuple[list[float], list[float]],
) -> None:
    one, other = ({"logits": torch.tensor(values)} for values in pair)
    found = compare_outputs(one, other)
    assert found == compare_outputs(other, one)
    assert found.largest is not None
    assert found.largest >= 0


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1.0, 1.5, 0.5),
        (NAN, NAN, 0.0),
        (INF, INF, 0.0),
        (-INF, -INF, 0.0),
        (NAN, 1.0, INF),
        (INF, 1.0, INF),
        (INF, -INF, INF),
        (INF, NAN, INF),
        (0.0, -0.0, 0.0),
    ],
)
def test_what_is_no_number_differs_from_any_number(
    one: float, other: float, expected: float
) -> None:
    for first, second in ((one, other), (other, one)):
        assert compare_outputs(torch.tensor(first), torch.tensor(second)).largest == expected
        assert compare_outputs(torch.tensor([2.0, first]), torch.tensor([2.0, second])).largest == (
            expected
        )


def test_the_tensor_that_differs_most_is_named() -> None:
    now = {"loss": torch.tensor(1.0), "hidden": [torch.ones(2), torch.tensor([1.0, 4.0])]}
    before = {"loss": torch.tensor(1.5), "hidden": (torch.ones(2), torch.ones(2))}
    assert compare_outputs(now, before) == TensorDifference(3.0, "hidden.1")


def test_what_is_of_another_shape_or_on_one_side_alone_is_apart() -> None:
    now = {"logits": torch.ones(2, 3), "loss": torch.tensor(1.0)}
    before = {"logits": torch.ones(3, 2), "aux": torch.ones(1)}
    assert compare_outputs(now, before) == TensorDifference(None, "", ("loss", "aux", "logits"))


def test_where_nothing_is_a_tensor_nothing_is_compared() -> None:
    assert compare_outputs(None, {"n": 3}) == TensorDifference()
    assert compare_outputs(torch.empty(0, 4), torch.empty(0, 4)) == TensorDifference(0.0, "")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool])
def test_numbers_of_another_kind_are_compared_as_numbers(dtype: Any) -> None:
    now, before = torch.tensor([0.0, 1.0]), torch.tensor([0, 0]).to(dtype)
    assert compare_outputs(now, before).largest == 1.0


def test_what_was_compared_is_as_it_was() -> None:
    now = torch.tensor([NAN, 1.0], dtype=torch.float64, requires_grad=True)
    before = torch.tensor([NAN, 2.0], dtype=torch.float64)
    assert compare_outputs(now, before).largest == 1.0
    assert str(now.tolist()) == "[nan, 1.0]"
    assert now.requires_grad


def test_rows_and_samples_in_one_row_are_compared_token_by_token() -> None:
    before = {
        "input_ids": torch.tensor([[1, 2, 0], [3, 4, 5]]),
        "attention_mask": torch.tensor([[1, 1, 0], [1, 1, 1]]),
    }
    now = pack_samples(before)
    assert now is not None
    then, row = torch.tensor([[1.0, 2, 99], [3, 4, 5]]), torch.tensor([[1.0, 2, 3, 4, 5.5]])
    where = (find_tokens(now), find_tokens(before))
    assert compare_outputs({"logits": row}, {"logits": then}, *where) == TensorDifference(
        0.5, "logits"
    )
    assert compare_outputs(torch.ones(1, 7), torch.ones(2, 3), *where).apart == ("",)
    assert compare_outputs({"logits": row}, {"logits": then}).apart == ("logits",)


@dataclass
class Returned:
    """What a module of one's own may return."""

    logits: Any
    cache: Any = None


def test_the_fields_of_a_dataclass_are_compared() -> None:
    now, before = Returned(torch.ones(2)), {"logits": torch.zeros(2)}
    assert compare_outputs(now, before) == TensorDifference(1.0, "logits")
    assert [name for name, _ in walk_tensors([Returned(torch.ones(2))])] == ["0.logits"]
    assert list(walk_tensors(Returned)) == []


def test_tensors_have_the_names_of_what_they_are_in() -> None:
    one = torch.ones(1)
    nested = OrderedDict(logits=one, past=((one, None), [one]), n=3)
    assert [name for name, _ in walk_tensors(nested)] == ["logits", "past.0.0", "past.1.0"]
    assert dict(walk_tensors(one)) == {"": one}
