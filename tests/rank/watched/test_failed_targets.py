"""What processes write down that fail, and what is read of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hangbisect.base.place import FOLDER_VARIABLE, LARGEST_TARGETS_FILE, TARGETS_FILE
from hangbisect.monitor.failed_targets import read_failed_targets
from hangbisect.rank.watched.failed_targets import note_failure


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def test_the_first_error_of_a_process_is_read(folder: Path) -> None:
    note_failure(ValueError("no memory for the cache"))
    note_failure(RuntimeError("it failed before"))
    (told,) = read_failed_targets(folder).values()
    assert (told.pid, told.parent) == (os.getpid(), os.getppid())
    assert told.error == "ValueError: no memory for the cache"


def test_neither_the_error_nor_the_command_is_written_down_with_its_secrets(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "hangbisect.rank.watched.failed_targets._read_words"
    monkeypatch.setattr(module, lambda: ["python", "serve.py", "--api-key", "hunter2hunter2"])
    note_failure(ValueError("no answer: password=hunter2hunter2"))
    text = (folder / TARGETS_FILE).read_text()
    assert "serve.py" in text
    assert "hunter2" not in text


def test_what_ends_no_process_by_an_error_is_not_written_down(folder: Path) -> None:
    note_failure(None)
    note_failure(SystemExit(1))
    assert not (folder / TARGETS_FILE).exists()


def test_of_a_pool_whose_workers_fail_for_ever_the_file_does_not_grow(folder: Path) -> None:
    file = folder / TARGETS_FILE
    file.write_bytes(b"\n" * LARGEST_TARGETS_FILE)
    note_failure(ValueError("no memory for the cache"))
    assert file.stat().st_size == LARGEST_TARGETS_FILE


def test_lines_that_nobody_of_ours_wrote_are_left_out(folder: Path) -> None:
    note_failure(ValueError("no memory"))
    with (folder / TARGETS_FILE).open("ab") as file:
        file.write(b'{"pid": Infinity}\n' + b"[" * 100_000 + b"\n{}\n")
    assert [one.error for one in read_failed_targets(folder).values()] == ["ValueError: no memory"]
