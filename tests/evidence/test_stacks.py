"""Python stacks of other processes, as py-spy, pystack and faulthandler give them."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.deadline import Ran
from hangbisect.base.process_facts import Frame
from hangbisect.evidence import stacks
from hangbisect.evidence.external_tools import find_program
from hangbisect.evidence.process import words_of
from hypothesis import given
from hypothesis import strategies as st

from .own_threads import DEADLINE, wait_until

Start = Callable[..., subprocess.Popen[str]]
anything = st.one_of(st.text(), st.from_regex(r"[0-9a-f: \->()]{0,80}"))
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                [
                    "frames",
                    "os_thread_id",
                    "thread_name",
                    "name",
                    "line",
                    "module",
                    "locals",
                    "repr",
                ]
            ),
            inner,
        )
    ),
)


DUMP = """Timeout (0:00:01)!
Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/a b.py", line 7 in helper

Thread 0x00007f0000000002 (most recent call first):
  File "/train.py", line 12 in <module>
"""


def test_a_dump_of_faulthandler() -> None:
    main, helper = stacks.parse_faulthandler(DUMP, 5)
    assert main.os_id == 5
    assert main.frames == (Frame("<module>", "/train.py", 12),)
    assert [frame.line for frame in helper.frames] == [320, 7]


PRINTED = """Traceback for thread 9 (pt_autograd_0) [Waiting for the GIL] (most recent call last):
    (Python) File "/lib/threading.py", line 982, in run
        self._target("    (Python) File \\"/x.py\\", line 1, in fake")

The frame stack for thread 8 is empty
Traceback for thread 5 (python) [Garbage collecting,Has the GIL] (most recent call last):
    (Python) File "/a b.py", line 8, in <module>
        main()
    (C) File "???", line 0, in poll (/lib/libc.so.6)
"""


def test_what_pystack_prints() -> None:
    main, helper = stacks.parse_pystack(PRINTED, 5)
    assert (main.os_id, main.owns_gil, helper.os_id, helper.owns_gil) == (5, True, 9, False)
    assert main.frames == (
        Frame("poll (/lib/libc.so.6)", "???", 0, True),
        Frame("<module>", "/a b.py", 8),
    )
    assert [frame.name for frame in helper.frames] == ["run"]


def test_py_spy_json_main_thread_first_and_native_marked() -> None:
    frame = {"name": "f", "filename": "/x/a.py", "module": None, "line": 3}
    native = {"name": "poll", "filename": "libc.so.6", "module": "libc.so.6", "line": 0}
    data = [
        {"os_thread_id": 9, "thread_name": "bg", "frames": [frame]},
        {"os_thread_id": 5, "thread_name": None, "owns_gil": True, "frames": [native, frame]},
    ]
    main, _ = stacks.parse_py_spy(json.dumps(data), 5)
    assert (main.os_id, main.owns_gil) == (5, True)
    assert [one.native for one in main.frames] == [True, False]
    text = stacks.format_stacks(5, ["python", "a.py"], (main,))
    assert text == (
        "Process 5: python a.py\n\nThread 5 (idle+gil)\n    poll (libc.so.6)\n    f (a.py:3)\n"
    )


@given(any_json)
def test_any_json_gives_threads_or_none(data: Any) -> None:
    threads = stacks.parse_py_spy(json.dumps(data), 1)
    stacks.format_stacks(1, [], threads)


WHOLE = json.dumps(
    [
        {
            "os_thread_id": 1,
            "frames": [
                {
                    "name": "acquire",
                    "filename": "/filelock/_api.py",
                    "line": 3,
                    "locals": [{"name": "poll_interval", "repr": "0.05"}],
                }
            ],
        }
    ]
)


@given(st.integers(0, len(WHOLE)))
def test_json_that_was_cut_off_gives_none(length: int) -> None:
    assert len(stacks.parse_py_spy(WHOLE[:length], 1)) == (length == len(WHOLE))


def test_an_address_without_a_library_is_a_native_frame() -> None:
    frames = [
        {"name": "0x7ffd8c00", "filename": "?", "module": None, "line": 0},
        {"name": "0x_hex", "filename": "a.py", "module": None, "line": 3},
    ]
    (thread,) = stacks.parse_py_spy(json.dumps([{"os_thread_id": 7, "frames": frames}]), 7)
    assert [one.native for one in thread.frames] == [True, False]


def test_a_native_frame_keeps_its_library_where_its_source_is_known() -> None:
    frame = {"name": "connect", "filename": "/src/hook.c", "module": "/opt/x/libx.so", "line": 15}
    plain = frame | {"filename": "/opt/x/libx.so", "line": 0}
    text = json.dumps([{"os_thread_id": 1, "frames": [frame, plain]}])
    (thread,) = stacks.parse_py_spy(text, 1)
    assert [one.library for one in thread.frames] == ["/opt/x/libx.so", ""]


@given(anything)
def test_any_text_of_a_tool_is_taken(text: str) -> None:
    stacks.parse_faulthandler(text, 1)
    stacks.parse_pystack(text, 1)
    stacks.parse_py_spy(text, 1)


# ---- of real processes ---------------------------------------------------------------------------

SCRIPT = """
import sys
def load(rank, path):
    print("here", flush=True)
    sys.stdin.read()
load(3, "/data/x")
"""


@pytest.fixture
def waiting(start: Start, tmp_path: Path) -> int:
    """A Python that waits in `load`."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    process = start(sys.executable, "-I", "-S", script, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    return process.pid


def read(pid: int, **options: Any) -> stacks.Stacks:
    return asyncio.run(stacks.read_stacks(pid, **{"limit": DEADLINE, **options}))


def test_the_locals_that_say_which_rank_it_is_come_with_its_stacks(waiting: int) -> None:
    found = read(waiting, with_locals=True)
    (thread,) = found.threads
    frame = thread.frames[0]
    assert (frame.name, frame.line, frame.native) == ("load", 5, False)
    assert frame.locals == (("rank", "3"),)  # of all other locals nothing is kept
    assert frame.texts == (("path", "/data/x"),)
    # Texts may be secret: they are forgotten once a lock was looked for in them.
    assert stacks.forget_texts(found.threads)[0].frames[0].texts == ()
    assert stacks.forget_texts(found.threads)[0].frames[1] is thread.frames[1]
    assert found.missing == ""


def test_native_frames_stand_between_those_of_python(waiting: int) -> None:
    found = read(waiting, native=True)
    (thread,) = found.threads
    assert any(one.native for one in thread.frames)
    assert [one.name for one in thread.frames if not one.native] == ["load", "<module>"]
    assert not stacks.is_stopped(waiting)  # it goes on


def test_a_process_that_is_no_python_or_is_gone_is_hopeless(start: Start) -> None:
    process = start("sleep", "3600")
    wait_until(lambda: words_of(process.pid), lambda words: words[:1] == ("sleep",))
    found = read(process.pid, with_locals=True)
    assert (found.threads, found.hopeless) == ((), True)
    assert found.missing == f"{process.pid} is not running Python, or not yet."
    assert asyncio.run(stacks.why_py_spy_cannot_look(process.pid)) == found.missing
    gone = read(1 << 30)
    assert (gone.hopeless, gone.missing) == (True, f"{1 << 30} is gone.")


def test_a_py_spy_that_does_not_answer_in_time_is_ended(
    waiting: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "py-spy"
    slow.write_text("#!/bin/sh\nexec sleep 300\n")
    slow.chmod(0o755)
    monkeypatch.setattr(stacks, "find_program", lambda: str(slow))
    found = read(waiting, limit=0.3)
    assert found.threads == ()
    assert re.fullmatch(
        rf"py-spy (gave no answer on {waiting} within \d+\.\d s and was killed"
        rf"|did not start, or did not end, on {waiting})\.",
        found.missing,
    )
    assert not found.hopeless


def test_a_stopped_process_is_known_to_be_stopped_and_its_stacks_are_read(waiting: int) -> None:
    os.kill(waiting, signal.SIGSTOP)
    wait_until(lambda: stacks.is_stopped(waiting), bool)
    assert [one.name for one in read(waiting).threads[0].frames] == ["load", "<module>"]
    os.kill(waiting, signal.SIGCONT)
    wait_until(lambda: stacks.is_stopped(waiting), lambda stopped: not stopped)
    assert not stacks.is_stopped(1 << 30)


def failure(error: str) -> tuple[bool, str]:
    return stacks.explain_py_spy_failure(os.getpid(), Ran(1, b"", error, 0.1))


@pytest.mark.parametrize(
    ("error", "hopeless", "sentence"),
    [
        # What py-spy 0.4 prints (src/python_spy.rs, py-spy's crate remoteprocess).
        ("Permission Denied: Try running again with elevated permissions", True, "no permission"),
        ("Error: Operation not permitted (os error 1)", True, "no permission"),
        ("Error: Failed to find python version from target process", True, "not running Python"),
        ("Error: Failed to get a python interpreter", True, "not running Python"),
        ("\nError: Failed to merge\nReason: x", False, "Failed to merge"),
        ("", False, "no message"),
    ],
)
def test_why_py_spy_failed(error: str, hopeless: bool, sentence: str) -> None:
    found, told = failure(error)
    assert found is hopeless
    assert sentence in told
    assert "Error:" not in told


def test_of_a_file_of_faulthandler_the_last_dump_counts(tmp_path: Path) -> None:
    """dump_traceback_later(repeat=True) appends (Python's faulthandler)."""
    path = tmp_path / "stacks.txt"
    path.write_text(DUMP + DUMP.replace("line 12", "line 99"))
    (main, _), text = stacks.read_faulthandler(str(path), 5)
    assert main.frames == (Frame("<module>", "/train.py", 99),)
    assert text == DUMP.replace("line 12", "line 99")
    path.write_text("\n")
    assert stacks.read_faulthandler(str(path), 5) == ((), "")
    assert stacks.read_faulthandler(str(tmp_path / "none"), 5) == ((), "")


def test_what_faulthandler_really_writes_is_read(tmp_path: Path) -> None:
    with (tmp_path / "stacks.txt").open("w") as file:
        faulthandler.dump_traceback(file)
    threads, _ = stacks.read_faulthandler(str(tmp_path / "stacks.txt"), os.getpid())
    name = "test_what_faulthandler_really_writes_is_read"
    assert threads[0].os_id == os.getpid()
    assert threads[0].frames[0].name == name
    assert threads[0].frames[0].file == __file__


def test_without_pystack_nothing_is_read_and_nothing_is_missing(waiting: int) -> None:
    """Nobody asked for it: where it is not installed, that is no fact to tell."""
    found = asyncio.run(stacks.read_stacks_by_pystack(waiting, DEADLINE))
    if find_program("pystack") is None:
        assert found == stacks.Stacks()
    else:
        assert [one.name for one in found.threads[0].frames if not one.native][:1] == ["load"]
