"""What the tasks of an event loop await, as Python 3.14's own tool prints it: 3.14.10."""

from __future__ import annotations

from hangbisect.base.process_facts import AsyncTask, Frame, Thread
from hangbisect.evidence import event_loops
from hypothesis import given
from hypothesis import strategies as st

LIB = "/usr/lib/python3.14"
TREE = f"""\
└── (T) Task-1
    └──  main /home/ada/aio.py:9
        └──  TaskGroup.__aexit__ {LIB}/asyncio/taskgroups.py:72
            └──  TaskGroup._aexit {LIB}/asyncio/taskgroups.py:121
                ├── (T) load shards
                │   └──  worker /home/ada/aio.py:5
                │       └──  fetch.<locals>.once /home/ada/with space.py:3
                ├── (T) other
                │   └──  worker /home/ada/aio.py:5
                │       └──  fetch /home/ada/aio.py:3
                └── (T) Task-2
                    └──  sleep {LIB}/asyncio/tasks.py:716
└── (T) idle
"""
CYCLE = """\
ERROR: await-graph contains cycles - cannot print a tree!

cycle: writes → reads → writes
"""


def test_each_task_has_its_frames_the_innermost_first_and_those_it_awaits() -> None:
    first, shards, other, sleeps, idle = event_loops.parse_task_tree(TREE)
    assert first == AsyncTask(
        "Task-1",
        (
            Frame("TaskGroup._aexit", f"{LIB}/asyncio/taskgroups.py", 121),
            Frame("TaskGroup.__aexit__", f"{LIB}/asyncio/taskgroups.py", 72),
            Frame("main", "/home/ada/aio.py", 9),
        ),
        awaits=("load shards", "other", "Task-2"),
    )
    assert shards == AsyncTask(
        "load shards",
        (
            Frame("fetch.<locals>.once", "/home/ada/with space.py", 3),
            Frame("worker", "/home/ada/aio.py", 5),
        ),
    )
    assert [one.name for one in (other, sleeps, idle)] == ["other", "Task-2", "idle"]
    assert idle.frames == ()


def test_tasks_that_await_one_another_are_a_ring() -> None:
    assert event_loops.parse_task_ring(CYCLE) == ("writes", "reads", "writes")
    assert event_loops.parse_task_ring("") == ()


@given(st.text(alphabet="└─├│ (T)x/:9\n", max_size=80))
def test_whatever_it_prints_is_read(text: str) -> None:
    for task in event_loops.parse_task_tree(text):
        assert isinstance(task.name, str)
    event_loops.parse_task_ring(text)


def test_only_a_python_that_has_the_tool_is_asked_and_only_where_a_loop_runs() -> None:
    def runs(path: str) -> bool:
        frame = Frame("BaseEventLoop._run_once", path, 2026)
        return event_loops.runs_readable_loop((Thread(1, "MainThread", False, False, (frame,)),))

    assert runs(f"{LIB}/asyncio/base_events.py")
    assert runs("/opt/py/lib/python3.15/asyncio/base_events.py")
    assert not runs("/usr/lib/python3.13/asyncio/base_events.py")
    assert not runs("/usr/lib/python3.9/asyncio/base_events.py")
    assert not runs(f"{LIB}/selectors.py")
