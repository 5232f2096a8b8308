"""Logs that processes of a job have left, and what they end with."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hangbisect.evidence import left_logs
from hangbisect.evidence.left_logs import (
    ERROR_LINE,
    count_last_error,
    find_left_logs,
    find_repeated_error,
    read_left_log,
)

ENDED = "Traceback (most recent call last):\n  ...\nFileNotFoundError: 'shard{}.txt'\n"


def test_a_log_that_ends_with_an_error_says_how_often_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "rank2.log"
    file.write_text(ENDED.format(1) + "loading\n" + ENDED.format(2))
    log = read_left_log(str(file))
    assert log is not None
    assert (log.times, log.error) == (2, "FileNotFoundError: 'shard2.txt'")


@pytest.mark.parametrize("text", ["", "loading\n", ENDED.format(1) + "epoch 3\n"])
def test_a_log_that_goes_on_after_an_error_tells_of_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rank2.log"
    file.write_text(text)
    assert read_left_log(str(file)) is None
    assert read_left_log(str(tmp_path / "none.log")) is None


def test_logs_beside_those_that_are_open_are_found_but_these_and_old_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("rank0.log", "rank1.log", "rank2.log", "rank3.log", "notes.md"):
        (tmp_path / name).write_text(ENDED.format(0))
    os.utime(tmp_path / "rank1.log", (1.0, 1.0))  # of an earlier job
    os.symlink(tmp_path / "rank2.log", tmp_path / "link.log")
    opened = {1: str(tmp_path / "rank0.log")}
    monkeypatch.setattr(left_logs, "read_links", lambda pid: opened)
    monkeypatch.setattr(os, "readlink", lambda path: str(tmp_path / "elsewhere"))
    found = find_left_logs([4711], time.time() - 60)
    assert [os.path.basename(log.path) for log in found] in (
        ["rank2.log", "rank3.log"],
        ["rank3.log", "rank2.log"],
    )


KEY = "KeyError: 'lm_head'\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (3 * f"Process Worker-1:\n{KEY}", ("KeyError: 'lm_head'", 3)),
        (3 * KEY + "epoch 1\n", ("KeyError: 'lm_head'", 3)),  # another process writes to it too
        ("".join(f"OSError: port {n}\n" for n in range(4)), ("OSError: port 3", 4)),
        (2 * KEY, None),
        (3 * KEY + 80 * "step\n", None),  # long ago
        (3 * "3 Errors: none\n", None),
    ],
)
def test_an_exception_that_is_written_again_and_again(
    text: str, found: tuple[str, int] | None
) -> None:
    assert count_last_error(text.splitlines()) == found


def test_a_log_of_a_programs_own_names_other_errors(tmp_path: Path) -> None:
    log = tmp_path / "error.log"
    log.write_text(3 * "[CRITICAL] WORKER TIMEOUT (pid:77)\n")
    paths = [str(tmp_path / "none"), str(tmp_path), str(log)]
    assert find_repeated_error(paths) is None
    found = find_repeated_error(paths, ERROR_LINE)
    assert found is not None
    assert (found.path, found.times) == (str(log), 3)
