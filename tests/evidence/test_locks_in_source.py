"""Which locks a line of source takes, and inside of which it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.base.process_facts import FILE_LOCK, CodeLock, Frame, Kernel, Look, Syscall, Thread
from hangbisect.evidence.locks_in_source import add_code_locks, find_locks_at

SOURCE = """\
import fcntl, threading
from paths import SHARED
LOCK = threading.Lock()

def device(path):
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

class Stage:
    def load(self):
        with self._lock:
            work()
            with device("x"):
                work()

    def start(self, first):
        first.acquire()
        work()
        first.release()
        work()
        try:
            LOCK.acquire()
            work()
        finally:
            LOCK.release()

    def nested(self):
        here = threading.Lock()
        def inner():
            with here:
                work()
        with here: inner()
        with (
            LOCK,
            self.other,
        ):
            work()

    def alone(self, path):
        file = open(path)
        fcntl.flock(file, fcntl.LOCK_EX)
        work()
        fcntl.flock(file, fcntl.LOCK_UN)
        with SHARED, torch.no_grad():
            work()
"""
LINES = SOURCE.splitlines()


def line_of(text: str, after: str = "", count: int = 1) -> int:
    start = next(n for n, line in enumerate(LINES) if after in line)
    found = [n for n, line in enumerate(LINES) if text in line and n > start]
    return found[count - 1] + 1


def names(after: str, text: str = "work()", count: int = 1) -> tuple[str, list[str]]:
    found = find_locks_at(SOURCE, line_of(text, after, count))
    return found.takes, list(found.inside)


def test_the_line_of_a_with_takes_the_lock_and_what_is_below_it_has_it() -> None:
    assert names("def load", "with self._lock") == ("self._lock", [])
    assert names("def load") == ("", ["self._lock"])


def test_a_with_whose_call_locks_a_file_is_a_lock_too() -> None:
    assert names("def load", count=2) == ("", ["self._lock", "device('x')"])
    assert names("def load", 'with device("x")') == ("", ["self._lock"])


def test_between_acquire_and_release_the_lock_is_there() -> None:
    assert names("def start", "first.acquire") == ("first", [])
    assert names("def start") == ("", ["first"])
    assert names("def start", count=2) == ("", [])


def test_so_it_is_in_a_try_whose_end_releases_it() -> None:
    assert names("def start", count=3) == ("", ["LOCK"])
    assert names("def start", "LOCK.acquire") == ("LOCK", [])


def test_of_several_locks_of_one_with_those_before_are_there() -> None:
    assert names("with (", "self.other") == ("self.other", ["LOCK"])
    assert names("with (") == ("", ["LOCK", "self.other"])


def test_a_with_and_its_body_on_one_line_tell_nothing() -> None:
    assert names("def inner", "with here: inner") == ("", [])


def test_a_lock_on_a_file_is_there_until_it_is_given_up() -> None:
    assert names("def alone") == ("", ["fcntl.flock(file, fcntl.LOCK_EX)"])
    # `torch.no_grad()` is a call that locks nothing.
    assert names("def alone", count=2) == ("", ["SHARED"])


@pytest.mark.parametrize("source", ["", "def (", "with a:\n    x"])
def test_what_is_no_python_or_has_no_such_line_has_none(source: str) -> None:
    assert find_locks_at(source, 400) == ("", ())


FOR_EVER = Syscall(202, "futex", (0x7F00, 0x189, 0, 0, 0, 0))


def seen(tmp_path: Path, *threads: tuple[int, Frame], objects: str = "0x7f01") -> Look:
    """A look at threads that each stand in one frame of the source, those up to 8 in a futex."""
    path = tmp_path / "stage.py"
    path.write_text(SOURCE, encoding="utf-8")
    made = [
        Thread(
            tid,
            None,
            False,
            False,
            (
                Frame(f.name, str(path), f.line, objects=f.objects),
                Frame("Thread.run", "/usr/lib/python3.11/threading.py", 982),
            ),
        )
        for tid, f in threads
    ]
    kernel = tuple(
        Kernel(tid, "python", "S", "", FOR_EVER if tid < 9 else None) for tid, _ in threads
    )
    return Look(1.0, 7, 1, "python", (), 5.0, "S", "py-spy", tuple(made), kernel)


def frame(after: str, text: str = "work()", count: int = 1, **objects: str) -> Frame:
    return Frame("f", "", line_of(text, after, count), objects=tuple(objects.items()))


def test_the_same_attribute_of_the_same_object_is_the_same_lock(tmp_path: Path) -> None:
    waits = frame("def load", "with self._lock", self="0x7f01")
    look = add_code_locks(
        seen(tmp_path, (8, waits), (9, frame("def load", count=2, self="0x7f01")))
    )
    takes = look.threads[0].frames[0].takes
    assert takes == CodeLock("self._lock", "0x7f01._lock")
    assert look.threads[1].frames[0].inside == (
        takes,
        CodeLock("device('x')", FILE_LOCK),
    )


def test_that_of_another_object_is_another_one(tmp_path: Path) -> None:
    waits = frame("def load", "with self._lock", self="0x7f01")
    look = add_code_locks(seen(tmp_path, (8, waits), (9, frame("def load", self="0x7f02"))))
    assert look.threads[0].frames[0].takes not in look.threads[1].frames[0].inside


def test_a_name_of_the_module_is_one_lock_and_a_parameter_tells_nothing(tmp_path: Path) -> None:
    look = add_code_locks(
        seen(
            tmp_path,
            (1, frame("def start", "LOCK.acquire")),
            (2, frame("def start", "first.acquire")),
            (3, frame("def start", "first.acquire", first="0x7f05")),
            (4, frame("def inner", "with here")),
        )
    )
    found = [thread.frames[0].takes for thread in look.threads]
    assert found == [
        CodeLock("LOCK", "stage.py:LOCK"),
        CodeLock("first", ""),
        CodeLock("first", "0x7f05"),
        CodeLock("here", "stage.py:nested.here"),
    ] or found[3] == CodeLock("here", "stage.py:Stage.nested.here")


def test_where_nobody_waits_for_such_a_lock_no_source_is_asked(tmp_path: Path) -> None:
    look = seen(tmp_path, (9, frame("def load", count=2, self="0x7f01")))
    assert add_code_locks(look) is look
