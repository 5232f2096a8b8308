"""Files that threads wait to disappear: their being there is the lock."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hangbisect.base.process_facts import Frame, Kernel, Syscall, Thread
from hangbisect.evidence.awaited_files import find_awaited_files, find_polled_path, parse_maker

BATON = """\
import os, time

class Baton:
    def __init__(self, file_path, seconds=0.1):
        self.file_path = file_path

    def take(self):
        try:
            self.fd = os.open(self.file_path, os.O_CREAT | os.O_EXCL)
            return True
        except FileExistsError:
            return False

    def wait(self):
        while os.path.exists(self.file_path):
            time.sleep(0.1)

def build(folder):
    baton = Baton(os.path.join(folder, "lock"))
    if not baton.take():
        baton.wait()

READY = "/tmp/x/ready"
NAME = "index"

def until_ready():
    while not os.path.exists(READY):
        time.sleep(0.1)

def exclusive(path):
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            time.sleep(0.2)

def helper(root):
    where = f"{root}/{NAME}.lock"
    while not _take(where):
        time.sleep(0.3)

def _take(name):
    try:
        with open(name, "x"):
            return True
    except OSError:
        return False

def leaves(folder):
    lock = folder + "/.lock"
    for _ in range(1000):
        if not os.path.isfile(lock):
            break
        time.sleep(0.4)

def links(path):
    while True:
        try:
            os.symlink(path, f"{path}.lock")
            break
        except FileExistsError:
            time.sleep(0.6)

def links_to(lock):
    while True:
        try:
            lock.symlink_to("owner")
            return
        except FileExistsError:
            time.sleep(0.7)

def elsewhere(path):
    open(path, "x").close()
    while True:
        time.sleep(0.5)
"""


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(BATON.splitlines(), 1) if text in line)


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "baton.py"
    path.write_text(BATON, encoding="utf-8")
    return str(path)


def frame(source: str, name: str, text: str, **texts: str) -> Frame:
    return Frame(name, source, line_of(text), texts=tuple(texts.items()))


def test_the_path_of_an_attribute_is_what_its_constructor_was_called_with(source: str) -> None:
    frames = (
        frame(source, "Baton.wait", "sleep(0.1)"),
        frame(source, "build", "baton.wait()", folder="/cache/ext"),
    )
    assert find_polled_path(frames) == (frames[0], "/cache/ext/lock")


@pytest.mark.parametrize(
    ("name", "text", "texts", "path"),
    [
        ("exclusive", "sleep(0.2)", {"path": "/c/a.lock"}, "/c/a.lock"),
        ("helper", "sleep(0.3)", {"root": "/c"}, "/c/index.lock"),
        ("leaves", "sleep(0.4)", {"folder": "/c"}, "/c/.lock"),
        # Of a link that is its own path, and not where it leads.
        ("links", "sleep(0.6)", {"path": "/c/study.log"}, "/c/study.log.lock"),
        ("links_to", "sleep(0.7)", {"lock": "/c/a.lock"}, "/c/a.lock"),
    ],
)
def test_what_a_loop_tries_to_make_or_waits_to_go_is_a_lock(
    source: str, name: str, text: str, texts: dict[str, str], path: str
) -> None:
    one = frame(source, name, text, **texts)
    assert find_polled_path((one,)) == (one, path)


def test_a_file_that_is_to_come_is_none(source: str) -> None:
    at = line_of("while not os.path.exists(READY)") + 1
    assert find_polled_path((Frame("until_ready", source, at),)) is None


def test_nor_is_one_that_no_loop_asks_for(source: str) -> None:
    assert find_polled_path((frame(source, "elsewhere", "sleep(0.5)", path="/c/x"),)) is None


def test_nor_is_one_whose_path_is_not_known(source: str) -> None:
    assert find_polled_path((frame(source, "exclusive", "sleep(0.2)"),)) is None


@pytest.mark.parametrize(
    ("text", "host", "found"),
    [
        ("4711\n", "n01", 4711),
        ("pid: 4711", "n01", 4711),
        ("4711 n01", "n01", 4711),
        ("n02 4711", "n01", None),
        ("", "n01", None),
        ("locked", "n01", None),
        ("0", "n01", None),
        ("x" * 4000 + " 12", "n01", None),
    ],
)
def test_a_pid_counts_where_it_is_of_this_machine(text: str, host: str, found: int | None) -> None:
    assert parse_maker(text, host) == found


# ---- real files ------------------------------------------------------------------------------


def polls(source: str, path: Path, tid: int | None = None) -> tuple[Thread, Kernel]:
    tid = tid or os.getpid()
    one = frame(source, "exclusive", "sleep(0.2)", path=str(path))
    call = Syscall(230, "clock_nanosleep", (1, 1, 0, 0, 0, 0), timeout=0.1)
    return Thread(tid, None, False, False, (one,)), Kernel(tid, "python", "S", "", call)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def find(source: str, path: Path):  # type: ignore[no-untyped-def]  # short
    thread, kernel = polls(source, path)
    found = find_awaited_files(os.getpid(), [thread], [kernel])
    assert len(found) == 1
    return found[0]


def test_an_old_empty_file_has_no_owner_that_is_known(source: str, tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.touch()
    os.utime(path, (time.time() - 86400,) * 2)
    found = find(source, path)
    assert (found.path, found.thread, found.place) == (
        str(path),
        os.getpid(),
        f"exclusive (baton.py:{line_of('sleep(0.2)')})",
    )
    assert found.age == pytest.approx(86400, abs=600)
    assert (found.holder, found.maker, found.maker_lives) == (None, None, None)


def test_the_process_that_it_names_lives(
    source: str, tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "a.lock"
    path.write_text(f"{sleeper.pid}\n", encoding="utf-8")
    os.utime(path, (time.time() + 5,) * 2)  # whoever made it had started before
    found = find(source, path)
    assert (found.maker, found.maker_lives) == (sleeper.pid, True)
    assert found.maker_name.startswith("python")


def test_a_pid_that_went_to_a_younger_process_is_of_none(
    source: str, tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "a.lock"
    path.write_text(f"{sleeper.pid}\n", encoding="utf-8")
    os.utime(path, (time.time() - 3600,) * 2)
    assert find(source, path).maker_lives is False


def test_the_process_that_it_names_is_gone(source: str, tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    path.write_text(done.stdout, encoding="utf-8")
    found = find(source, path)
    assert (found.maker, found.maker_lives) == (int(done.stdout), False)


def test_who_has_it_open_is_known(source: str, tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    program = f"import time; f = open({str(path)!r}, 'x'); print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = find(source, path)
        assert found.holder == process.pid
        process.kill()


def test_a_file_that_is_gone_is_waited_for_by_nobody(source: str, tmp_path: Path) -> None:
    thread, kernel = polls(source, tmp_path / "gone.lock")
    assert find_awaited_files(os.getpid(), [thread], [kernel]) == ()


def test_a_thread_that_runs_is_not_asked(source: str, tmp_path: Path) -> None:
    (tmp_path / "a.lock").touch()
    thread, kernel = polls(source, tmp_path / "a.lock")
    busy = Kernel(kernel.tid, "python", "R", "", None)
    assert find_awaited_files(os.getpid(), [thread], [busy]) == ()
