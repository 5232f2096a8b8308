"""Which lines of a source stand below an `except`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.base.process_facts import Frame, Look, Thread
from hangbisect.evidence.source_code import add_code_around, find_handler
from hypothesis import given, settings
from hypothesis import strategies as st

# The line in question ends in "# here".
BELOW = [
    ("try:\n    x()\nexcept OSError as error:\n    sleep(1)  # here", "except OSError"),
    ("try: x()\nexcept (A, b.C): sleep(1)  # here", "except (A, b.C)"),
    ("try:\n    x()\nexcept:\n    if a:\n        sleep(1)  # here", "except"),
    ("try:\n    x()\nexcept* A:\n    sleep(1)  # here", "except A"),
    ("def f():\n  try:\n    x()\n  except A:\n    with b:\n      sleep(\n  1) # here", "except A"),
]
NOT_BELOW = [
    "try:\n    sleep(1)  # here\nexcept OSError:\n    pass",
    "try:\n    x()\nexcept OSError:\n    pass\nelse:\n    sleep(1)  # here",
    "try:\n    x()\nexcept OSError:\n    pass\nfinally:\n    sleep(1)  # here",
    "try:\n    x()\nexcept OSError:\n    pass\nsleep(1)  # here",
    "try:\n    x()\nexcept A:\n    def later():\n        sleep(1)  # here",
    "not python  # here",
]


def _line(source: str) -> int:
    return next(n for n, line in enumerate(source.splitlines(), 1) if line.endswith("# here"))


@pytest.mark.parametrize(("source", "handler"), BELOW)
def test_an_exception_was_caught_before_such_a_line(source: str, handler: str) -> None:
    assert find_handler(source, _line(source)) == handler


@pytest.mark.parametrize("source", NOT_BELOW)
def test_other_lines_are_come_by_without_one(source: str) -> None:
    assert find_handler(source, _line(source)) == ""


@given(st.text(), st.integers())
@settings(deadline=None)
def test_garbage_has_no_handlers(source: str, line: int) -> None:
    assert isinstance(find_handler(source, line), str)


def test_a_look_gets_those_of_the_jobs_own_lines(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(BELOW[0][0])
    own, gone = Frame("f", str(file), 4), Frame("g", str(tmp_path / "gone.py"), 4)
    library = Frame("h", "/venv/lib/python3.11/site-packages/x.py", 4)
    main, other = (
        Thread(7, None, False, False, (own, library, gone)),
        Thread(8, "", False, False, ()),
    )
    look = Look(1.0, 7, 1, "python", (), 1.0, "S", "py-spy", threads=(main, other))
    told = add_code_around(look)
    assert [frame.handler for frame in told.threads[0].frames] == ["except OSError", "", ""]
    assert told.threads[1] is other
    nothing = Look(1.0, 7, 1, "python", (), 1.0, "S", "proc")
    assert add_code_around(nothing) is nothing


def test_a_frame_has_the_condition_by_which_only_some_ranks_come(tmp_path: Path) -> None:
    """What a log of collectives has of a call, `attach` has of where a rank stands."""
    file = tmp_path / "train.py"
    file.write_text("if rank == 2:\n    dist.all_gather(losses, loss)\ndist.barrier()\n")
    frames = tuple(Frame("train", str(file), line) for line in (2, 3))
    threads = (Thread(7, None, False, False, frames),)
    told = add_code_around(Look(1.0, 7, 1, "python", (), 1.0, "S", "py-spy", threads=threads))
    assert told.main is not None
    assert [frame.condition for frame in told.main.frames] == ["if rank == 2", ""]
