"""Samples in one row, and a row for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hangbisect.pipelines.module_inputs import (
    TokenPlaces,
    find_tokens,
    pack_samples,
    unpack_samples,
)
from hypothesis import given
from hypothesis import strategies as st

LENGTHS = st.lists(st.integers(1, 9), min_size=2, max_size=6)


def padded(lengths: list[int], left: bool = False) -> dict[str, Any]:
    """Return an input with a row for each sample; tokens are counted from 1, padding is 0."""
    longest, begin = max(lengths), 1
    ids, mask = torch.zeros(2, len(lengths), longest, dtype=torch.long).unbind()
    for row, length in enumerate(lengths):
        at = slice(longest - length, longest) if left else slice(length)
        ids[row, at] = torch.arange(begin, begin + length)
        mask[row, at] = 1
        begin += length
    return {"input_ids": ids, "attention_mask": mask}


@given(LENGTHS)
def test_what_is_packed_and_unpacked_is_as_it_was(lengths: list[int]) -> None:
    before = padded(lengths)
    row = pack_samples(before)
    assert row is not None
    after = unpack_samples(row)
    assert after is not None
    assert list(after) == ["input_ids", "attention_mask"]
    assert torch.equal(after["input_ids"], before["input_ids"])
    assert torch.equal(after["attention_mask"], before["attention_mask"])


@given(LENGTHS, st.booleans())
def test_one_row_has_all_tokens_in_order_and_no_padding(lengths: list[int], left: bool) -> None:
    row = pack_samples(padded(lengths, left))
    assert row is not None
    assert sorted(row) == ["input_ids", "position_ids"]
    assert row["input_ids"].tolist() == [list(range(1, sum(lengths) + 1))]
    expected = [position for length in lengths for position in range(length)]
    assert row["position_ids"].tolist() == [expected]


@given(LENGTHS, st.booleans())
def test_a_value_of_each_token_is_found_in_both_forms(lengths: list[int], left: bool) -> None:
    before = padded(lengths, left)
    row = pack_samples(before)
    assert row is not None
    there, here = find_tokens(before), find_tokens(row)
    assert there is not None
    assert here is not None
    values = before["input_ids"].unsqueeze(-1) * torch.tensor([1.0, 2.0])
    in_row = row["input_ids"].unsqueeze(-1) * torch.tensor([1.0, 2.0])
    assert torch.equal(there.of(values), here.of(in_row))


def test_what_has_a_value_for_each_token_goes_along_and_all_else_stays() -> None:
    scale, weights = torch.tensor([1.0, 2.0, 3.0]), torch.rand(2, 3, 5)
    before = {**padded([2, 3]), "weights": weights, "scale": scale, "use_cache": False, "no": None}
    row = pack_samples(before)
    assert row is not None
    assert torch.equal(row["weights"], torch.cat([weights[0, :2], weights[1]]).unsqueeze(0))
    assert row["scale"] is scale
    assert (row["use_cache"], row["no"]) == (False, None)
    after = unpack_samples(row)
    assert after is not None
    assert torch.equal(after["weights"][1], weights[1])
    assert after["weights"][0, 2].tolist() == [0.0] * 5
    assert after["scale"] is scale


def test_no_samples_first_token_is_foretold_by_the_one_before_it() -> None:
    before = padded([2, 3])
    row = pack_samples({**before, "labels": before["input_ids"].clone()})
    assert row is not None
    assert row["labels"].tolist() == [[-100, 2, -100, 4, 5]]
    after = unpack_samples(row)
    assert after is not None
    assert after["labels"].tolist() == [[-100, 2, -100], [-100, 4, 5]]
    assert torch.equal(before["input_ids"], padded([2, 3])["input_ids"])


def test_the_ends_of_samples_are_made_anew() -> None:
    ends = {"cu_seq_lens_q": torch.tensor([0, 2, 5]), "max_length_q": 3, "seq_idx": None}
    row = pack_samples(padded([2, 3]))
    assert row is not None
    after = unpack_samples({**row, **ends})
    assert after is not None
    assert sorted(after) == ["attention_mask", "input_ids"]


def test_without_a_mask_all_are_tokens() -> None:
    row = pack_samples({"input_ids": torch.arange(6).view(2, 3)})
    assert row is not None
    assert row["input_ids"].tolist() == [[0, 1, 2, 3, 4, 5]]
    assert row["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2]]


IDS = torch.arange(4).unsqueeze(0)


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"input_ids": None},
        {"input_ids": [[1, 2], [3, 4]]},
        {"input_ids": torch.arange(4)},
        {"input_ids": IDS},
        {"input_ids": IDS, "position_ids": torch.tensor([[0, 1, 0, 1]])},
    ],
    ids=["nothing", "none", "a list", "no rows", "one row", "packed"],
)
def test_there_is_nothing_to_pack(kwargs: dict[str, Any]) -> None:
    assert pack_samples(kwargs) is None


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        padded([2, 3]),
        {"input_ids": IDS},
        {"input_ids": IDS, "position_ids": IDS},
        {"input_ids": IDS, "position_ids": torch.tensor([[1, 0, 1, 2]])},
        {"input_ids": IDS, "position_ids": torch.tensor([0, 1, 0, 1])},
    ],
    ids=["nothing", "rows", "no positions", "one sample", "begins within", "another shape"],
)
def test_there_is_nothing_to_unpack(kwargs: dict[str, Any]) -> None:
    assert unpack_samples(kwargs) is None


def test_what_is_of_another_shape_has_no_part_for_each_token() -> None:
    found = find_tokens(padded([1, 2]))
    assert isinstance(found, TokenPlaces)
    loss = torch.tensor(3.0)
    assert found.of(loss) is loss
    assert found.of(torch.rand(2, 2, 7)).shape == (3, 7)
    assert find_tokens({"pixel_values": torch.rand(2, 2)}) is None
