"""Python stacks of other processes, as py-spy, pystack and faulthandler give them."""

from __future__ import annotations

import json
from typing import Any

from hangbisect.base.process_facts import Frame
from hangbisect.evidence import stacks
from hypothesis import given
from hypothesis import strategies as st

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
