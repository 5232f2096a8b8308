"""Files that are no captures, or not whole: one error each, which names the file."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
import torch
from hangbisect.captures.capture_file import KEY, Record, TensorCopies, encode_file, encode_value
from hangbisect.captures.reading import (
    Unreadable,
    list_files,
    list_folder,
    load,
    outputs_beside,
    read_head,
)
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save


def made(**changed: object) -> bytes:
    """Return a capture's file, or one that says something else."""
    kept = TensorCopies()
    tree = encode_value({"args": (torch.arange(4),), "kwargs": {"n": 2}}, kept.keep)
    right = Record("inputs", "Net", "net:Net", 0, 1, "n01", 7, 1e9, True, True, tree)
    return encode_file(dataclasses.replace(right, **changed), kept)  # type: ignore[arg-type]  # wrong on purpose


def with_text(text: str) -> bytes:
    """Return a safetensors file that says `text` where a capture says of its call."""
    data: bytes = save({"0": torch.arange(4)}, {KEY: text})
    return data


DEEP = '{"schema": 1, "tree": ' + "[" * 100_000 + "]" * 100_000 + "}"
HOSTILE = {
    "empty": b"",
    "a pickle": b"\x80\x04cposix\nsystem\n(S'touch executed'\ntR.",
    "text": b"sequences\n" * 100,
    "a length beyond the file": (2**63).to_bytes(8, "little") + b"{}",
    "others' safetensors": save({"weight": torch.ones(2)}),
    "no JSON": with_text("{"),
    "no object": with_text("[]"),
    "a deep nest": with_text(DEEP),
    "a number of a million digits": with_text('{"schema": ' + "9" * 1_000_000 + "}"),
    "another version": with_text('{"schema": 2}'),
    "too little": with_text('{"schema": 1, "rank": 0}'),
    "a rank that is a list": made(rank=[0]),
    "a tree that is none": made(tree={"is": "dict", "in": 5}),
    "no arguments": made(tree=[1]),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_that_is_no_capture_is_named(what: str, tmp_path: Path) -> None:
    path = tmp_path / "one.inputs.safetensors"
    path.write_bytes(HOSTILE[what])
    with pytest.raises(Unreadable, match=r"one\.inputs\.safetensors: "):
        load(str(path))
    assert not Path("executed").exists()


@given(st.data())
def test_a_file_that_was_cut_anywhere_is_never_taken_for_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = made()
    path = tmp_path_factory.getbasetemp() / "cut.inputs.safetensors"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(Unreadable, match=r"cut\.inputs"):
        read_head(str(path))


def test_a_pipe_a_folder_and_nothing_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "nowhere"):
        with pytest.raises(Unreadable, match=str(path)):
            read_head(str(path))


def test_the_others_are_listed_in_the_order_of_their_times(tmp_path: Path) -> None:
    for number, at in enumerate((3e8, 1e8, 2e8)):
        (tmp_path / f"{number}.inputs.safetensors").write_bytes(made(at=at))
    (tmp_path / "x.inputs.safetensors").write_bytes(made()[:-1])
    (tmp_path / "1.outputs.safetensors").write_bytes(
        made(kind="outputs", tree=None, raised="ValueError: no")
    )
    (tmp_path / "0.outputs.safetensors").write_bytes(b"cut")
    (tmp_path / "other.txt").write_text("")
    found = list_folder(str(tmp_path))
    assert [(Path(one.path).name[0], one.outcome) for one in found.captures] == [
        ("1", "raised ValueError"),
        ("2", ""),
    ]
    named = sorted(Path(str(error).partition(":")[0]).name for error in found.unreadable)
    assert named == ["0.outputs.safetensors", "x.inputs.safetensors"]
    json.dumps([one.as_data() for one in found.captures])


def test_files_by_name_are_listed_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    paths = [str(tmp_path / folder / "one.inputs.safetensors") for folder in "abc"]
    for path, at in zip(paths, (3e8, 1e8, 2e8), strict=True):
        Path(path).parent.mkdir()
        Path(path).write_bytes(made(at=at))
    Path(outputs_beside(paths[1])).write_bytes(made(kind="outputs", tree=None))
    Path(outputs_beside(paths[2])).write_bytes(
        made(kind="outputs", tree=None, raised="ValueError: no")
    )
    found = list_files([*paths, paths[0]])
    assert [one.path for one in found.captures] == [*paths, paths[0]]
    assert [one.outcome for one in found.captures] == ["", "returned", "raised ValueError", ""]
    assert found.captures[0].bytes == os.stat(paths[0]).st_size
    assert found.unreadable == ()


def test_files_by_name_may_be_called_anything(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(made())
    (tmp_path / "one.outputs.safetensors").write_bytes(made(kind="outputs", tree=None))
    (found,) = list_files([str(tmp_path / "one")]).captures
    assert (found.record.name, found.outcome) == ("Net", "returned")


def test_of_files_by_name_those_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "cut.inputs.safetensors").write_bytes(made()[:-1])
    (tmp_path / "one.outputs.safetensors").write_bytes(made(kind="outputs", tree=None))
    (tmp_path / "right.inputs.safetensors").write_bytes(made())
    names = ("cut.inputs.safetensors", "one.outputs.safetensors", "nowhere", ".")
    found = list_files([str(tmp_path / name) for name in (*names, "right.inputs.safetensors")])
    assert [Path(one.path).name for one in found.captures] == ["right.inputs.safetensors"]
    for name, error in zip(names, found.unreadable, strict=True):
        assert str(error).startswith(f"{tmp_path / name}: ")
    assert "these are outputs, without their inputs" in str(found.unreadable[1])


def test_outputs_lie_beside_their_inputs() -> None:
    assert outputs_beside("a/x.inputs.safetensors") == "a/x.outputs.safetensors"
    assert outputs_beside("made") == "made.outputs.safetensors"
