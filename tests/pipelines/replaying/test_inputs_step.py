"""Which of the captured inputs a rank repeats."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hangbisect.base.errors import UsageError
from hangbisect.base.place import find_place
from hangbisect.captures.capture_file import (
    INPUTS,
    Record,
    TensorCopies,
    encode_file,
    encode_value,
    file_stem,
)
from hangbisect.captures.reading import CapturedCall
from hangbisect.pipelines.replay_inputs import ChosenInputs, captured_inputs
from hangbisect.rank.arguments import parse_walk_arguments


def record(name: str = "Actor", rank: int = 0, at: float = 1e9, **kwargs: Any) -> Record:
    tree = encode_value({"args": (), "kwargs": kwargs}, lambda tensor: "0")
    return Record("inputs", name, f"net:{name}", rank, 2, "n01", 7, at, True, True, tree)


def chosen(**kwargs: Any) -> ChosenInputs:
    return ChosenInputs((CapturedCall("one", record(**kwargs), 10, ""),), 1)


def write(folder: Path, name: str = "Actor", rank: int = 0, at: float = 1e9) -> str:
    """Write a capture without tensors; return its path."""
    path = folder / f"{file_stem(name, rank, at)}{INPUTS}"
    path.write_bytes(encode_file(record(name, rank, at, n=1), TensorCopies()))
    return str(path)


def context(*words: str, rank: int = 0, ranks: int = 1) -> Any:
    """Return what the step sees of a rank; what it says is in `told`."""
    place = SimpleNamespace(rank=rank, world_size=ranks)
    told: list[str] = []
    return SimpleNamespace(
        args=parse_walk_arguments(["--pipeline", "replay", *words], find_place({}), {})[0],
        place=place,
        told=told,
        say=told.append,
        about_to=lambda *words: None,
        imports=lambda name: None,
        not_exercised=[],
    )


def names(found: ChosenInputs) -> list[str]:
    return [f"{one.record.name}{one.record.rank}@{one.record.at - 1e9:.0f}" for one in found.calls]


ENDS = torch.tensor([0, 2, 5])


@pytest.mark.parametrize(
    "name", ["cu_seqlens", "cu_seqlens_q", "cu_seq_lens_k", "packed_seq_lens", "seq_idx"]
)
def test_inputs_that_name_the_ends_of_samples_are_packed(name: str) -> None:
    assert chosen(**{name: ENDS}).is_packed
    assert chosen(batch={name: [2, 3]}).is_packed
    assert not chosen(**{name: None}).is_packed


def test_other_inputs_are_not_packed() -> None:
    assert not chosen(input_ids=ENDS, attention_mask=ENDS, position_ids=ENDS).is_packed
    assert not chosen(seq_idx_of_mine=ENDS, note="cu_seqlens").is_packed
    assert not ChosenInputs((), 1).is_packed


def test_one_that_is_packed_is_enough_and_the_largest_counts() -> None:
    calls = (
        CapturedCall("a", record(n=1), 10, ""),
        CapturedCall("b", record(cu_seqlens=ENDS), 30, ""),
        CapturedCall("c", record(n=1), 20, ""),
    )
    assert ChosenInputs(calls, 3).is_packed
    assert ChosenInputs(calls, 3).largest == 30
    assert ChosenInputs((), 1).largest == 0


def test_each_rank_takes_its_own_by_time_and_as_often_as_the_others(tmp_path: Path) -> None:
    for rank, at in ((1, 3), (0, 2), (0, 4), (0, 1)):
        write(tmp_path, rank=rank, at=1e9 + at)
    first = captured_inputs(context("--captures", str(tmp_path), rank=0, ranks=2))
    assert (names(first), first.forwards) == (["Actor0@1", "Actor0@2", "Actor0@4"], 3)
    here = context("--captures", str(tmp_path), rank=1, ranks=2)
    second = captured_inputs(here)
    assert (names(second), second.forwards) == (["Actor1@3"], 3)
    assert any("begins again after 1, so that every rank does 3 forwards" in t for t in here.told)
    alone = captured_inputs(context("--captures", str(tmp_path), "--max-inputs", "3"))
    assert names(alone) == ["Actor0@1", "Actor0@2", "Actor1@3"]


def test_those_of_one_rank_are_taken_by_all(tmp_path: Path) -> None:
    for rank, at in ((0, 1), (1, 2), (1, 3)):
        write(tmp_path, rank=rank, at=1e9 + at)
    words = ("--captures", str(tmp_path), "--rank", "1")
    for rank in (0, 1, 2):
        found = captured_inputs(context(*words, rank=rank, ranks=3))
        assert (names(found), found.forwards) == (["Actor1@2", "Actor1@3"], 2)
    fewer = captured_inputs(context(*words, "--max-inputs", "1"))
    assert (names(fewer), fewer.forwards) == (["Actor1@2"], 1)


def test_a_rank_without_captures_is_an_error_that_names_those_with_some(tmp_path: Path) -> None:
    write(tmp_path, rank=0)
    write(tmp_path, rank=2)
    with pytest.raises(UsageError, match=r"--rank 1: .* has inputs of ranks 0,2 alone"):
        captured_inputs(context("--captures", str(tmp_path), "--rank", "1"))


def test_of_several_modules_one_is_to_be_named(tmp_path: Path) -> None:
    for name in ("Critic", "Actor"):
        write(tmp_path, name)
    words = ("--captures", str(tmp_path))
    with pytest.raises(UsageError, match="inputs of 2 modules are there: Actor, Critic") as got:
        captured_inputs(context(*words))
    assert "--captured Actor" in got.value.help
    assert names(captured_inputs(context(*words, "--captured", "Critic"))) == ["Critic0@0"]
    with pytest.raises(UsageError, match=r"--captured Crtic: .*Critic"):
        captured_inputs(context(*words, "--captured", "Crtic"))


def test_files_by_name_are_taken_in_that_order(tmp_path: Path) -> None:
    later, earlier = write(tmp_path, at=1e9 + 2), write(tmp_path, at=1e9 + 1)
    found = captured_inputs(context("--input-file", later, "--input-file", earlier))
    assert names(found) == ["Actor0@2", "Actor0@1"]


def test_files_by_name_are_not_said_to_be_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANGBISECT_CAPTURE_DIR", str(tmp_path / "elsewhere"))
    here = context("--input-file", write(tmp_path))
    captured_inputs(here)
    assert not any("elsewhere" in line for line in here.told)


def test_files_that_cannot_be_read_are_left_out_and_told(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / f"cut{INPUTS}").write_bytes(b"cut")
    here = context("--captures", str(tmp_path))
    assert names(captured_inputs(here)) == ["Actor0@0"]
    assert here.not_exercised == ["1 file left out"]
    assert here.told[0].startswith("Left out: ")


def test_where_nothing_was_captured_an_input_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANGBISECT_CAPTURE_DIR", str(tmp_path / "captures"))
    for _ in ("no folder", "an empty one"):
        here = context(ranks=2)
        assert captured_inputs(here) == ChosenInputs((), 1)
        assert here.not_exercised == ["captured inputs (one was made)"]
        (tmp_path / "captures").mkdir(exist_ok=True)


@pytest.mark.parametrize(
    "words", [("--captures", "."), ("--captured", "Actor"), ("--rank", "0")], ids=" ".join
)
def test_what_was_asked_for_is_not_made(
    words: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HANGBISECT_CAPTURE_DIR", raising=False)
    with pytest.raises(UsageError, match="there is no captured input"):
        captured_inputs(context(*words))


@pytest.mark.parametrize("words", [("--input-file", "cut"), ("--captures", ".")], ids=" ".join)
def test_where_nothing_can_be_read_the_error_has_the_reason(
    words: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"cut{INPUTS}").write_bytes(b"")
    flag, value = words
    value = value + INPUTS if value == "cut" else value
    with pytest.raises(UsageError, match=r"^no captured input can be read: .*cut.*: it is empty$"):
        captured_inputs(context(flag, value))
    (tmp_path / f"a{INPUTS}").write_bytes(b"")
    with pytest.raises(UsageError, match=r"it is empty; nor can 1 other$"):
        captured_inputs(context("--captures", "."))
