"""Captured inputs, as a module gets them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hangbisect.captures.capture_file import (
    INPUTS,
    Record,
    TensorCopies,
    encode_file,
    encode_value,
    file_stem,
)
from hangbisect.captures.reading import Unreadable
from hangbisect.pipelines.module_inputs import ModuleInput, apply_packing, move_input, read_input

IDS = torch.arange(6).view(2, 3)
MASK = torch.tensor([[1, 1, 0], [1, 1, 1]])


class Cached(torch.nn.Module):
    """Takes tokens, and may keep a cache."""

    def forward(self, input_ids: Any, use_cache: bool = True, **more: Any) -> Any:
        """Return the tokens."""
        return input_ids


class Plain(torch.nn.Module):
    """Takes tokens."""

    def forward(self, input_ids: Any, **more: Any) -> Any:
        """Return the tokens."""
        return input_ids


def written(folder: Path, *args: Any, **kwargs: Any) -> str:
    """Return the file of a call with these arguments."""
    kept, at = TensorCopies(), time.time()
    tree = encode_value({"args": args, "kwargs": kwargs}, kept.keep)
    record = Record("inputs", "Actor", "net:Actor", 3, 8, "n01", 7, at, True, False, tree)
    path = folder / f"{file_stem('Actor', 3, at)}{INPUTS}"
    path.write_bytes(encode_file(record, kept))
    return str(path)


def made(*args: Any, **kwargs: Any) -> ModuleInput:
    return ModuleInput("one", 0, args, kwargs, training=False, grad=False)


def test_a_capture_comes_back_as_the_call_that_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, IDS, 2.5, attention_mask=MASK, scale=None, also=[MASK, (IDS, "x")])
    given = read_input(path)
    assert given.name == Path(path).name.removesuffix(".inputs.safetensors")
    assert (given.rank, given.training, given.grad, given.left_out) == (3, True, False, ())
    assert torch.equal(given.args[0], IDS)
    assert given.args[1] == 2.5
    assert list(given.kwargs) == ["attention_mask", "scale", "also"]
    assert torch.equal(given.kwargs["also"][1][0], IDS)


def test_arguments_by_name_that_were_not_kept_are_left_out_and_told(tmp_path: Path) -> None:
    given = read_input(written(tmp_path, IDS, past_key_values=Plain(), use_cache=False))
    assert dict(given.kwargs) == {"use_cache": False}
    (told,) = given.left_out
    assert told.startswith("past_key_values (")
    assert told.endswith(".Plain)")


def test_one_by_position_that_was_not_kept_cannot_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"its argument 1 has a .*Plain, which was not kept"):
        read_input(written(tmp_path, IDS, Plain()))


def test_on_its_device_what_is_no_whole_number_has_the_precision_that_is_wanted() -> None:
    half = torch.ones(2, dtype=torch.float16)
    given = made([half, {"deep": half}], half, ids=IDS, on=MASK.bool(), n=3, wave=half.float() + 1j)
    moved = move_input(given, torch.device("cpu"), torch.bfloat16)
    assert moved.args[0][0].dtype is moved.args[0][1]["deep"].dtype is torch.bfloat16
    assert moved.args[1].dtype is torch.bfloat16
    assert (moved.kwargs["ids"].dtype, moved.kwargs["on"].dtype) == (torch.int64, torch.bool)
    assert (moved.kwargs["n"], moved.kwargs["wave"].is_complex()) == (3, True)
    assert isinstance(moved.args, tuple)
    assert (moved.name, moved.training) == (given.name, given.training)
    assert given.args[1].dtype is torch.float16


def test_without_a_precision_all_is_as_it_was_captured() -> None:
    moved = move_input(made(torch.ones(2, dtype=torch.float16), IDS), torch.device("meta"), None)
    assert [(value.device.type, value.dtype) for value in moved.args] == [
        ("meta", torch.float16),
        ("meta", torch.int64),
    ]


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        (made(input_ids=IDS, attention_mask=MASK), 5),
        (made(input_ids=IDS, attention_mask=MASK.bool()), 5),
        (made(IDS, attention_mask=MASK[:, None, None].float()), 6),
        (made(IDS), 6),
        (made(torch.rand(2, 4, 7)), 8),
        (made(inputs_embeds=torch.rand(2, 4, 7), attention_mask=MASK), 5),
        (made(torch.rand(2, 3), "x", 5), 0),
        (made(), 0),
    ],
)
def test_tokens_are_counted_where_something_tells(given: ModuleInput, tokens: int) -> None:
    assert given.tokens == tokens


def test_samples_are_packed_and_unpacked_for_the_module() -> None:
    row = apply_packing(made(input_ids=IDS, attention_mask=MASK), "on", Cached())
    assert row.kwargs["input_ids"].tolist() == [[0, 1, 3, 4, 5]]
    assert row.kwargs["use_cache"] is False
    assert row.tokens == 5
    assert row.here is not None
    assert row.there is not None
    assert (row.here.shape, row.there.shape) == ((1, 5), (2, 3))
    rows = apply_packing(row, "off", Plain())
    assert torch.equal(rows.kwargs["attention_mask"], MASK)
    assert rows.tokens == 5


def test_what_cannot_be_packed_stays_as_it_is() -> None:
    for given in (made(IDS), made(IDS, input_ids=IDS), made(input_ids=IDS[:1]), made()):
        assert apply_packing(given, "on", Cached()) is given
    as_it_was = made(input_ids=IDS, attention_mask=MASK)
    assert apply_packing(as_it_was, "as-set", Cached()) is as_it_was
    assert apply_packing(as_it_was, "off", Cached()) is as_it_was


def test_a_module_without_a_cache_is_not_told_of_one() -> None:
    assert "use_cache" not in apply_packing(made(input_ids=IDS), "on", Plain()).kwargs


def test_nor_can_a_part_of_an_argument(tmp_path: Path) -> None:
    path = written(tmp_path, IDS, states=[IDS, Plain()])
    with pytest.raises(Unreadable, match=r"its argument states has a .*Plain, which was not kept"):
        read_input(path)
