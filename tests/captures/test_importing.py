"""Older dumps become captures; what would execute something is refused by its name."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hangbisect.captures.reading import Unreadable, convert_dump, load

DUMP = {
    "sequences": torch.arange(6).view(2, 3),
    "attention_mask": torch.ones(2, 3, dtype=torch.bool),
    "return_output": True,
    "packed_seq_lens": [2, 4],
    "action_mask": None,
    "timestamp": "20250619_052608_430740",
    "rank": 3,
    "batch_size": 2,
}


class Harmful:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("touch executed",)


def pickled(path: Path, value: Any) -> None:
    path.write_bytes(pickle.dumps(value))


def saved(path: Path, value: Any) -> None:
    torch.save(value, path)


def saved_as_long_ago(path: Path, value: Any) -> None:
    torch.save(value, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("write", [pickled, saved, saved_as_long_ago])
def test_a_dump_becomes_a_capture(write: Any, tmp_path: Path) -> None:
    write(tmp_path / "dump.pkl", DUMP)
    made = convert_dump(str(tmp_path / "dump.pkl"), str(tmp_path), "Actor")
    back = load(made.path)
    args, kwargs = back.value
    assert args == ()
    assert torch.equal(kwargs["sequences"], DUMP["sequences"])
    assert [*kwargs] == [*DUMP][:5]
    assert (back.record.rank, back.record.name) == (3, "Actor")
    assert "Actor-rank3-20250619T052608.430740" in made.path
    with pytest.raises(Unreadable, match="is there already"):
        convert_dump(str(tmp_path / "dump.pkl"), str(tmp_path), "Actor")


def test_rank_and_time_come_from_the_name_of_a_file_that_does_not_say(tmp_path: Path) -> None:
    path = tmp_path / "actor_inputs_rank2_20250619_052608_430740.pkl"
    pickled(path, [torch.ones(1)])
    made = convert_dump(str(path), str(tmp_path), "Actor")
    assert "rank2-20250619T052608.430740" in made.path
    assert torch.equal(load(made.path).value[0][0], torch.ones(1))


@pytest.mark.parametrize("write", [pickled, saved, saved_as_long_ago])
def test_what_would_be_executed_is_named_and_is_not(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "dump.pkl", {"ids": torch.ones(1), "more": Harmful()})
    with pytest.raises(Unreadable, match=r"dump.pkl: refused: it names (posix|nt)\.system"):
        convert_dump(str(tmp_path / "dump.pkl"), str(tmp_path), "Actor")
    assert not (tmp_path / "executed").exists()


def test_what_is_hidden_in_a_tensor_of_a_pickle_is_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Storage:
        def __reduce__(self) -> Any:
            return torch.storage._load_from_bytes, (pickle.dumps(Harmful()),)

    monkeypatch.chdir(tmp_path)
    pickled(tmp_path / "dump.pkl", {"ids": Storage()})
    with pytest.raises(Unreadable, match=r"dump\.pkl: "):
        convert_dump(str(tmp_path / "dump.pkl"), str(tmp_path), "Actor")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "data", [b"", b"text", b"\x80\x04", pickle.dumps(5), pickle.dumps({}), pickle.dumps({1: 2})]
)
def test_what_is_no_dump_of_inputs_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "dump.pkl").write_bytes(data)
    with pytest.raises(Unreadable, match=r"dump\.pkl: "):
        convert_dump(str(tmp_path / "dump.pkl"), str(tmp_path), "Actor")
    assert [*tmp_path.iterdir()] == [tmp_path / "dump.pkl"]
