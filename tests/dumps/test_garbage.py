"""Whatever a file holds, there is an answer or a sentence."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
from hangbisect.dumps.contents import Contents
from hangbisect.dumps.files import read_data, read_file, read_files
from hangbisect.dumps.merge import describe_divergence, judge_dumps, merge_dumps
from hangbisect.report.merged_dumps import merged_json, merged_lines
from hypothesis import given, settings
from hypothesis import strategies as st

from ..examples import examples

FILES = sorted((Path(__file__).parent / "real_dumps").iterdir())
REAL = {file.name: file.read_bytes() for file in FILES}
_WORDS = [
    *("Process 1: python", "Thread 1 (idle)", 'Thread 2 (active+gil): "MainThread"'),
    *("    f (train.py:3)", "    wait (libc.so.6)", "        Locals:", "            rank: 1"),
    *("Traceback for thread 7 (python) [Has the GIL] (most recent call last):", "Timeout (0:01)!"),
    *('    (Python) File "/x.py", line 3, in <module>', '    (C) File "x.c", line -1, in g (y)'),
    *("Thread 0x7f (most recent call first):", '  File "/x.py", line 3 in <module>', "rank 2"),
    *("Current thread 0x8 (most recent call first):", "rank 1 on n pid 3", "0: ", "[rank1]: "),
    *("    all_reduce (torch/distributed/distributed_c10d.py:1)", "\x1b[31m", "", "{", "["),
    *(
        "    init_process_group (torch/distributed/distributed_c10d.py:9)",
        "Fatal Python error: Bus error",
    ),
    *("    wait (threading.py:3)", "    time_sleep (libpython.so)", "Parent Process 1: x"),
]


def said(found: Contents) -> None:
    """Go all the way to what is printed."""
    merged = merge_dumps(found)
    if merged.ranks:
        verdict = judge_dumps(merged)
        assert merged_lines(merged, verdict, describe_divergence(merged), 80)
        json.dumps(merged_json(merged, verdict, "", found.unreadable))
    else:
        assert found.unreadable or merged.notes


@given(st.lists(st.sampled_from(_WORDS), max_size=30), st.sampled_from(["\n", "\n\n", ""]))
@settings(max_examples=examples(200))
def test_lines_of_dumps_in_any_order(lines: list[str], between: str) -> None:
    said(read_data(between.join(lines).encode(), "x"))


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    said(read_data(data, "x"))
    said(read_data(b"\x80\x02" + data, "x"))
    said(read_data(b'{"entries": [' + data, "x"))


@given(st.sampled_from(sorted(REAL)), st.data())
@settings(max_examples=examples(60))
def test_real_dumps_cut_off_anywhere(name: str, data: st.DataObject) -> None:
    whole = REAL[name]
    end = data.draw(st.integers(0, len(whole)))
    begin = data.draw(st.integers(0, end))
    said(read_data(whole[begin:end], name) + read_data(whole, name))
    said(read_data(whole[:end], name))


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@given(_PLAIN, _PLAIN, _PLAIN)
def test_dumps_with_anything_inside(entries: object, groups: object, frames: object) -> None:
    for data in (
        {"entries": entries, "pg_config": groups},
        {"entries": [entries, frames], "rank": groups, "pg_config": {"": groups}},
        [{"frames": frames, "pid": groups, "os_thread_id": entries}],
    ):
        said(read_data(json.dumps(data).encode(), "x"))
        said(read_data(pickle.dumps(data, 2), "x"))


class _Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch executed",)


def test_a_pickle_is_never_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        found = read_data(pickle.dumps({"entries": [_Runs()]}, protocol), "trace")
        assert "a dump holds no posix.system" in found.unreadable[0].fact
    assert not (tmp_path / "executed").exists()


def test_each_file_that_cannot_be_read_has_a_sentence_and_the_others_are_used(
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "notes.txt").write_text("it hangs\n")
    (tmp_path / "cut.json").write_text('{"entries": [\n{"a": ')
    good = next(file for file in FILES if file.name == "pystack-rank1.txt")
    names = ["absent", "empty", "notes.txt", "cut.json", "."]
    found = read_files([*(str(tmp_path / name) for name in names), str(good)])
    facts = {Path(one.file).name: one for one in found.unreadable}
    assert facts["absent"].fact == "No such file or directory"
    assert "it is empty; expected: what py-spy dump" in facts["empty"].fact
    assert facts["notes.txt"].fact.startswith("expected: what py-spy dump")
    assert facts["cut.json"].line == 2
    assert "folder" in facts[tmp_path.name].fact
    assert len(found.processes) == 1


def test_a_pipe_that_nobody_writes_to_does_not_hold_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangbisect.dumps.files.FILE_LIMIT", 0.1)
    os.mkfifo(tmp_path / "pipe")
    assert "did not come to an end" in read_file(str(tmp_path / "pipe")).unreadable[0].fact
