"""Which locks a line of source takes, and inside of which it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.process_facts import (
    FILE_LOCK,
    CodeLock,
    Frame,
    Futex,
    Kernel,
    Look,
    Syscall,
    Thread,
)
from hangbisect.base.rank_facts import RankFacts
from hangbisect.evidence.locks_in_source import add_code_locks, add_locks_of_others

from ..diagnosis.made_up import rank

Names = Callable[..., tuple[str, list[str]]]

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

    def save(self, path):
        with LOCK, open(path) as file:
            work()
"""
LINES = SOURCE.splitlines()


def line_of(text: str, after: str = "", count: int = 1) -> int:
    start = next(n for n, line in enumerate(LINES) if after in line)
    found = [n for n, line in enumerate(LINES) if text in line and n > start]
    return found[count - 1] + 1


@pytest.fixture
def names(tmp_path: Path) -> Names:
    """Return of a line what a thread takes that waits in it for ever, and what it stands inside."""

    def find(after: str, text: str = "work()", count: int = 1) -> tuple[str, list[str]]:
        waits = frame("def load", "with self._lock", self="0x7f01")  # so that the source is asked
        look = add_code_locks(seen(tmp_path, (1, frame(after, text, count)), (2, waits)))
        found = look.threads[0].frames[0]
        return found.takes.name if found.takes else "", [one.name for one in found.inside]

    return find


def test_the_line_of_a_with_takes_the_lock_and_what_is_below_it_has_it(names: Names) -> None:
    assert names("def load", "with self._lock") == ("self._lock", [])
    assert names("def load") == ("", ["self._lock"])


def test_a_with_whose_call_locks_a_file_is_a_lock_too(names: Names) -> None:
    assert names("def load", count=2) == ("", ["self._lock", "device('x')"])
    assert names("def load", 'with device("x")') == ("", ["self._lock"])


def test_between_acquire_and_release_the_lock_is_there(names: Names) -> None:
    assert names("def start", "first.acquire") == ("first", [])
    assert names("def start") == ("", ["first"])
    assert names("def start", count=2) == ("", [])


def test_so_it_is_in_a_try_whose_end_releases_it(names: Names) -> None:
    assert names("def start", count=3) == ("", ["LOCK"])
    assert names("def start", "LOCK.acquire") == ("LOCK", [])


def test_of_several_locks_of_one_with_those_before_are_there(names: Names) -> None:
    assert names("with (", "self.other") == ("self.other", ["LOCK"])
    assert names("with (") == ("", ["LOCK", "self.other"])


def test_who_is_in_the_call_of_such_a_line_has_the_lock_before_it(tmp_path: Path) -> None:
    """A thread that opens the file, and two that wait for the lock, on the same line."""
    line = frame("def save", "with LOCK, open")
    opens = Thread(3, "saver", False, False, (line,))
    waits = seen(tmp_path, (1, line), (2, line))
    opened = Kernel(3, "python", "S", "wait_for_partner", Syscall(257, "openat", (0,) * 6))
    threads = (*waits.threads, replace(opens, frames=waits.threads[0].frames))
    look = add_code_locks(replace(waits, threads=threads, kernel=(*waits.kernel, opened)))
    first, _, saver = (thread.frames[0] for thread in look.threads)
    assert first.takes is not None
    assert (first.takes.name, first.inside) == ("LOCK", ())
    assert [one.name for one in saver.inside] == ["LOCK"]
    assert saver.takes is None


def test_a_with_and_its_body_on_one_line_tell_nothing(names: Names) -> None:
    assert names("def inner", "with here: inner") == ("", [])


def test_a_lock_on_a_file_is_there_until_it_is_given_up(names: Names) -> None:
    assert names("def alone") == ("", ["fcntl.flock(file, fcntl.LOCK_EX)"])
    # `torch.no_grad()` is a call that locks nothing.
    assert names("def alone", count=2) == ("", ["SHARED"])


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


@pytest.mark.parametrize("source", ["", "def (", "with a:\n    x"])
def test_what_is_no_python_or_has_no_such_line_has_none(tmp_path: Path, source: str) -> None:
    path = tmp_path / "odd.py"
    path.write_text(source, encoding="utf-8")
    one = Thread(1, None, False, False, (Frame("f", str(path), 400),))
    kernel = (Kernel(1, "python", "S", "", FOR_EVER),)
    look = Look(1.0, 1, 1, "python", (), 5.0, "S", "py-spy", (one,), kernel)
    assert add_code_locks(look) is look


# ---- what several processes have -----------------------------------------------------------------


def sharing(one: Look, pid: int, *pids: int) -> RankFacts:
    """A rank whose first thread sleeps in a semaphore that these processes have too."""
    futex = Futex(0x7F00, 0, file="/dev/shm/sem.mp-x1", sharers=pids) if pids else None
    task = one.kernel[0]
    syscall = replace(task.syscall, futex=futex) if task.syscall else None
    kernel = (replace(task, tid=pid, syscall=syscall), *one.kernel[1:])
    main, *rest = one.threads
    one = replace(one, pid=pid, kernel=kernel, threads=(replace(main, os_id=pid), *rest))
    return rank(pid - 100, replace(one, threads=(replace(main, name="MainThread"), *rest)))


def test_what_a_rank_stands_inside_is_read_where_others_want_it(tmp_path: Path) -> None:
    waits = add_code_locks(seen(tmp_path, (1, frame("def load", "with self._lock"))))
    has = seen(tmp_path, (9, frame("def load")))
    found = add_locks_of_others([sharing(waits, 100, 101, 102), sharing(has, 101)])
    (frames,) = [thread.frames for thread in found[1].looks[-1].threads]
    assert [one.name for one in frames[0].inside] == ["self._lock"]


def test_it_is_not_read_of_one_that_does_not_share_it(tmp_path: Path) -> None:
    waits = add_code_locks(seen(tmp_path, (1, frame("def load", "with self._lock"))))
    has = seen(tmp_path, (9, frame("def load")))
    ranks = [sharing(waits, 100, 102), sharing(has, 101)]
    assert add_locks_of_others(ranks)[1] is ranks[1]


# ---- which lock it is ----------------------------------------------------------------------------

# Each takes a lock in the line that ends in "# here".
TAKES = [
    ("import paths as p\ndef f():\n    p.LOCK.acquire()  # here", "paths.py:LOCK"),
    ("import a.paths\nwith a.LOCK:  # here\n    x()", "stage.py:a.LOCK"),
    ("from . import locks\nwith locks.LOCK:  # here\n    x()", "locks.py:LOCK"),
    ("from .locks import A as B\ndef f():\n    with B:  # here\n        x()", "locks.py:A"),
    ("from .locks import A\ndef f():\n    with C:  # here\n        x()", "stage.py:C"),
    # A name that a function declares as the module's is the module's; one that it sets is its own.
    ("def f():\n    global L\n    L = make()\n    with L:  # here\n        x()", "stage.py:L"),
    ("def f():\n    L = make()\n    with L:  # here\n        x()", ""),
    ("def f(*locks, **more):\n    locks.acquire()  # here", ""),
    ("def f(a, /, *, lock):\n    lock.acquire()  # here", ""),
    ("def f():\n    for lock in LOCKS:\n        lock.acquire()  # here", ""),
    # Of an enclosing function it is one lock, however often the inner one runs.
    (
        "def f(lock):\n    def g():\n        nonlocal lock\n        lock.acquire()  # here",
        "stage.py:f.lock",
    ),
    ("def f(lock):\n    def g():\n        lock.a.acquire()  # here", "stage.py:f.lock.a"),
    (
        "f = on_start(\n    lambda lock: on_end(\n        lambda: lock.acquire()  # here\n    )\n)",
        "stage.py:lambda.lock",
    ),
    # What is set in a function inside of this one is none of this one's variables.
    (
        "def f():\n    def g():\n        L = 1\n    with L:  # here\n        x()",
        "stage.py:L",
    ),
    # Which of many it is, the source does not tell.
    ("with LOCKS[0]:  # here\n    x()", ""),
    ("def f(self):\n    with self.locks.first:  # here\n        x()", ""),
    ("def f(self):\n    with self.lock:  # here\n        x()", ""),
]
# The same, by a call of acquire(), however it is written.
ACQUIRES = [
    "def f(self):\n    self.lock.acquire()  # here",
    "def f(self):\n    got = self.lock.acquire()  # here",
    "def f(self):\n    return self.lock.acquire(True)  # here",
    "def f(self):\n    if self.lock.acquire():  # here\n        x()",
    "def f(self):\n    for x in y:\n        self.lock.acquire(blocking=True)  # here",
]


@pytest.mark.parametrize(("source", "identity"), TAKES)
def test_where_a_name_is_defined_is_which_lock_it_is(
    tmp_path: Path, source: str, identity: str
) -> None:
    (found,) = look_at_here(tmp_path, source).threads
    assert found.frames[0].takes is not None
    assert found.frames[0].takes.identity == identity


@pytest.mark.parametrize("source", ACQUIRES)
def test_the_lock_of_an_object_is_taken_by_its_acquire_as_by_a_with(
    tmp_path: Path, source: str
) -> None:
    (found,) = look_at_here(tmp_path, source).threads
    assert found.frames[0].takes == CodeLock("self.lock", "")


def look_at_here(tmp_path: Path, source: str, *above: Frame) -> Look:
    path = tmp_path / "stage.py"
    path.write_text(source, encoding="utf-8")
    line = next(n for n, text in enumerate(source.splitlines(), 1) if text.endswith("# here"))
    one = Thread(1, None, False, False, (*above, Frame("f", str(path), line)))
    kernel = (Kernel(1, "python", "S", "", FOR_EVER),)
    return add_code_locks(Look(1.0, 1, 1, "python", (), 5.0, "S", "py-spy", (one,), kernel))


@pytest.mark.parametrize(
    "above",
    [
        Frame("Condition.__enter__", "/usr/lib/python3.11/threading.py", 277),
        Frame("RLock.acquire", "/usr/lib/python3.11/threading.py", 164),
        Frame("SemLock.__enter__", "/usr/lib/python3.11/multiprocessing/synchronize.py", 95),
        Frame("sem_wait", "libc.so.6", 0, native=True),
    ],
)
def test_what_takes_a_lock_for_a_with_is_not_where_it_is_taken(
    tmp_path: Path, above: Frame
) -> None:
    (found,) = look_at_here(tmp_path, "with LOCK:  # here\n    x()", above).threads
    assert found.frames[0] == above
    assert found.frames[1].takes == CodeLock("LOCK", "stage.py:LOCK")


def test_who_waits_in_a_condition_waits_for_no_lock_of_its_source(tmp_path: Path) -> None:
    """Condition.wait() has given its lock back (threading.py): the line below it takes none."""
    above = Frame("Condition.wait", "/usr/lib/python3.11/threading.py", 327)
    (found,) = look_at_here(tmp_path, "with LOCK:\n    LOCK.wait()  # here", above).threads
    assert [one.takes for one in found.frames] == [None, None]


@pytest.mark.parametrize(
    ("source", "inside"),
    [
        # A call that locks a file, by a class that does so or by a function of the same source.
        ("with FileLock(path):\n    LOCK.acquire()  # here", ["FileLock(path)"]),
        ("with open(path):\n    LOCK.acquire()  # here", []),
        ("flock(file, LOCK_EX)\nLOCK.acquire()  # here", ["flock(file, LOCK_EX)"]),
        ("flock(a, LOCK_EX)\nflock(a, LOCK_UN)\nLOCK.acquire()  # here", []),
        (
            "flock(a, LOCK_EX)\nflock(b, LOCK_UN)\nLOCK.acquire()  # here",
            ["flock(a, LOCK_EX)"],
        ),
        # Taken in a loop, in an else; given back by a finally.
        ("for x in y:\n    A.acquire()\n    LOCK.acquire()  # here", ["A"]),
        ("if x:\n    y()\nelse:\n    A.acquire()\n    LOCK.acquire()  # here", ["A"]),
        ("try:\n    LOCK.acquire()  # here\nfinally:\n    A.release()", ["A"]),
        ("A.acquire()\nA.release()\nLOCK.acquire()  # here", []),
        # A function that only begins inside of a `with` runs at another time.
        ("with A:\n    def f():\n        LOCK.acquire()  # here", []),
        # A lock is not held while it is waited for.
        ("with LOCK:\n    LOCK.acquire()  # here", []),
    ],
)
def test_what_was_taken_before_and_not_given_back_is_held(
    tmp_path: Path, source: str, inside: list[str]
) -> None:
    (found,) = look_at_here(tmp_path, source).threads
    assert found.frames[0].takes is not None
    assert found.frames[0].takes.name == "LOCK"
    assert [one.name for one in found.frames[0].inside] == inside


def test_a_wait_for_a_lock_with_a_time_limit_is_no_deadlock(tmp_path: Path) -> None:
    """futex(2): the fourth argument is the time limit, NULL for none."""
    limited = Syscall(202, "futex", (0x7F00, 0x189, 0, 0x7FFE, 0, 0))
    look = seen(tmp_path, (1, frame("def start", "LOCK.acquire")))
    look = replace(look, kernel=(replace(look.kernel[0], syscall=limited),))
    assert add_code_locks(look) is look


def test_a_long_expression_is_cut(tmp_path: Path) -> None:
    name = "a" * 200
    (found,) = look_at_here(tmp_path, f"with {name}:  # here\n    x()").threads
    assert found.frames[0].takes is not None
    assert found.frames[0].takes.name == "a" * 57 + "..."
