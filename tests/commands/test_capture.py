"""`hangbisect capture`: the switch, and what is said of wrong words and files."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
import torch
from hangbisect.cli import main
from hangbisect.commands import capture


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HANGBISECT_CAPTURE_DIR", raising=False)


def test_on_status_and_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert capture.run(["on", "--max-captures", "7", "--max-gb=0.5"]) == 0
    said = capsys.readouterr().out
    assert f"in {tmp_path / 'captures'}: at most 7 of each rank, 477 MiB in all" in said
    assert "no module has answered yet" in said
    assert capture.run(["status"]) == 0
    assert capsys.readouterr().out == said
    assert capture.run(["off"]) == 0
    assert capsys.readouterr().out.startswith("off, ")
    assert capture.run(["off"]) == 0
    assert "it was off already" in capsys.readouterr().err


def test_the_folder_is_the_named_one_or_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANGBISECT_CAPTURE_DIR", str(tmp_path / "shared"))
    capture.run(["on"])
    capture.run(["on", "named"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["named", "shared"]


def test_a_dump_is_imported_and_listed_and_a_broken_one_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.pkl").write_bytes(pickle.dumps({"ids": torch.arange(3), "by": {1}, "rank": 2}))
    Path("b.pkl").write_bytes(b"\x80\x04")
    assert capture.run(["import", "a.pkl", "b.pkl", "c.pkl", "--name", "Actor\x1b"]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert "a.pkl: by (builtins.set) could not be kept" in err
    assert "b.pkl: truncated, or no dump" in err
    assert "c.pkl: No such file" in err
    assert capture.run(["list"]) == 0
    head, _, line = capsys.readouterr().out.splitlines()
    assert re.match(r"1 captured input of 1 rank, \d+ bytes, in ", head)
    assert line.split()[0] == "2"
    assert line.endswith("ids int64[3], by not kept: builtins.set")
    assert "\x1b" not in line
    (tmp_path / "captures" / "x.inputs.safetensors").write_bytes(b"x")
    assert capture.run(["list", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [one["rank"] for one in json.loads(out)["captures"]] == [2]
    assert err.count("x.inputs.safetensors: truncated") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "capture needs one of on, off"),
        (["onn"], "did you mean 'on'?"),
        (["on", "a", "b"], "takes one folder, not 2"),
        (["on", "--max-captures", "0"], "a whole number from 1"),
        (["on", "--max-gb", "-1"], "a number of gigabytes above 0"),
        (["list", "nowhere"], "nowhere: No such file or directory"),
        (["import"], "needs the files to import"),
    ],
)
def test_wrong_words_are_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capture", *words]) == 2
    assert said in capsys.readouterr().err
