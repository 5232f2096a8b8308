"""Arguments of a replay that contradict one another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.base.place import find_place
from hangbisect.pipelines.replay_preflight import check_contradictions, check_path_kinds
from hangbisect.rank.arguments import parse_walk_arguments


def parsed(*words: str) -> Any:
    return parse_walk_arguments(["--pipeline", "replay", *words], find_place({}), {})[0]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--captures", "there", "--captured", "Actor", "--rank", "0", "--max-inputs", "3"),
        ("--input-file", "a", "--input-file", "b", "--outputs", "before", "--save-outputs", "now"),
        ("--use", "module=my:module", "--weights", "there"),
        ("--keep-going", "--model", "gpt2"),
    ],
    ids=" ".join,
)
def test_what_goes_together_is_let_through(words: tuple[str, ...]) -> None:
    check_contradictions(parsed(*words), 1)


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--captures", "there"), ("--captured", "Actor"), ("--rank", "0"), ("--max-inputs", "1")],
)
def test_files_are_named_or_chosen_from_a_folder(flag: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"^--input-file names .* and {flag} chooses"):
        check_contradictions(parsed("--input-file", "one", flag, value), 1)


def test_a_module_is_said_once() -> None:
    with pytest.raises(UsageError, match="--model and --use module=my:module both say"):
        check_contradictions(parsed("--model", "gpt2", "--use", "module=my:module"), 1)


def test_several_ranks_do_not_go_on_after_a_failure() -> None:
    args = parsed("--keep-going")
    check_contradictions(args, 1)
    with pytest.raises(UsageError, match="--keep-going is for one rank, and there are 2"):
        check_contradictions(args, 2)


def test_outputs_are_not_saved_over_those_that_are_compared_with(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "before")
    (tmp_path / "before").mkdir()
    for same in ("before", "before/", "./before", "link"):
        args = parsed("--outputs", f"{tmp_path}/before", "--save-outputs", f"{tmp_path}/{same}")
        with pytest.raises(UsageError, match="would be overwritten"):
            check_contradictions(args, 1)


@pytest.mark.parametrize(
    "words",
    [("--captures", "there"), ("--input-file", "there/a"), ("--captures", "there/../there")],
)
def test_outputs_are_not_saved_over_those_that_were_captured(
    words: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="--save-outputs names there, where the captures are"):
        check_contradictions(parsed(*words, "--save-outputs", "there"), 1)
    check_contradictions(parsed(*words, "--save-outputs", os.path.join("there", "now")), 1)


def test_nor_where_the_environment_says_that_captures_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANGBISECT_CAPTURE_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="where the captures are"):
        check_contradictions(parsed("--save-outputs", str(tmp_path)), 1)


@pytest.mark.parametrize(
    ("words", "said", "instead"),
    [
        (("--captures", "file"), "--captures names 'file', which is no", "--input-file file"),
        (("--outputs", "file"), "--outputs names 'file', which is no folder", "--save-outputs"),
        (("--input-file", "folder"), "--input-file names 'folder', wh", "--captures folder"),
        (("--save-outputs", "file"), "--save-outputs names 'file', and no file can be", "made"),
        (("--save-module", "file/in/it"), "--save-module names 'file/in/it', and no", "made"),
    ],
    ids=str,
)
def test_a_file_in_place_of_a_folder_and_the_reverse(
    words: tuple[str, str],
    said: str,
    instead: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=said) as got:
        check_path_kinds(parsed(*words))
    assert instead in got.value.help


def test_a_folder_into_which_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match=r"--save-outputs names .* no file can be written there"):
        check_path_kinds(parsed("--save-outputs", str(tmp_path / "now" / "here")))


def test_what_is_of_its_kind_or_is_to_be_made_is_let_through(tmp_path: Path) -> None:
    (tmp_path / "a.inputs.safetensors").write_text("x")
    for words in (
        ("--captures", str(tmp_path), "--outputs", str(tmp_path)),
        ("--input-file", str(tmp_path / "a.inputs.safetensors")),
        ("--save-outputs", str(tmp_path / "new" / "deep"), "--save-module", str(tmp_path)),
    ):
        check_path_kinds(parsed(*words))
