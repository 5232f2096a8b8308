"""Lock files that are waited for, by frames and their locals; tails of logs; what ranks printed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.process_facts import FileLock, Frame, Thread
from hangbisect.evidence import descriptors, lock_and_log_files
from hangbisect.evidence.lock_and_log_files import PrintingRank, read_printed_lines
from hypothesis import given
from hypothesis import strategies as st

DEADLINE = 60.0  # seconds
SITE = "/venv/lib/python3.11/site-packages/"
BATON = Frame("FileBaton.wait", SITE + "torch/utils/file_baton.py", 48)
SOFT = SITE + "filelock/_api.py"


def build(folder: str) -> Frame:
    file = SITE + "torch/utils/cpp_extension.py"
    return Frame("_jit_compile", file, 2400, locals=(("build_directory", f'"{folder}"'),))


def soft(path: str, kind: str = "SoftFileLock") -> Frame:
    about = (("lock_filename", f'"{path}"'), ("self", f"<{kind}>"))
    return Frame("BaseFileLock._poll_until_acquired", SOFT, 1150, locals=about)


def waits(*frames: Frame) -> Thread:
    return Thread(1, None, False, False, frames)


@pytest.mark.parametrize(
    ("frames", "paths"),
    [
        ((BATON, build("/b")), ["/b/lock"]),
        ((BATON, Frame("_jit_compile", build("").file, 1)), []),  # no locals
        ((build("/b"),), []),  # it builds
        ((soft("/c/x.lock"),), ["/c/x.lock"]),
        ((soft("/c/x.lock", "UnixFileLock"),), []),  # the kernel knows who has that
        ((BATON, build("/very/long...")), []),
    ],
)
def test_files_whose_being_there_is_the_lock(frames: tuple[Frame, ...], paths: list[str]) -> None:
    assert [*lock_and_log_files.find_awaited_files([waits(*frames)])] == paths


def test_a_file_that_nobody_has_open_is_stale_and_one_that_is_gone_is_none(tmp_path: Path) -> None:
    there, gone = tmp_path / "there.lock", tmp_path / "gone.lock"
    there.touch()
    os.utime(there, (1000, 1000))
    threads = [waits(soft(str(there))), waits(soft(str(gone)))]
    held, (stale,) = lock_and_log_files.find_awaited_locks(os.getpid(), threads)
    assert held == ()
    assert (stale.path, stale.holder, stale.inode) == (str(there), None, there.stat().st_ino)
    assert stale.age == pytest.approx(time.time() - 1000, abs=100)


def test_a_lock_that_is_asked_for_is_found_by_its_path_though_a_part_of_that_is_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = FileLock(f"/c/.locks/{'0f' * 20}.lock", 5, 99, "other", waiting=False)
    others = [FileLock("/c/.locks/d/a.lock", 6, 98, waiting=False), replace(wanted, holder=1)]
    monkeypatch.setattr(lock_and_log_files, "find_all_held_locks", lambda: (wanted, *others))
    threads = [waits(soft("/c/.locks/***.lock", "UnixFileLock"))]
    assert lock_and_log_files.find_polled_locks(1, threads) == (wanted,)
    assert lock_and_log_files.find_polled_locks(1, [waits(soft("/c/.locks/***.lock"))]) == ()
    assert lock_and_log_files.find_polled_locks(1, [waits(BATON)]) == ()


def test_a_lock_without_a_path_has_no_age(tmp_path: Path) -> None:
    known = FileLock(str(tmp_path), 1, 5)
    nameless, named, gone = lock_and_log_files.add_lock_ages(
        os.getpid(), [FileLock("", 1, 5), known, FileLock("/not/there", 1, 5)]
    )
    assert named.age is not None
    assert (nameless.age, gone.age) == (None, None)


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/home/ann/job/wandb/run-20260101_000000-x/logs/debug.log", True),
        ("/home/ann/job/wandb/offline-run-20260101_000000-x/logs/debug-internal.log", True),
        ("/tmp/.wandb/run-20260101_000000-x/logs/debug-core.log", True),
        ("/home/ann/.cache/wandb/logs/core-debug-20260101_000000.log", True),
        ("/home/ann/job/wandb/run-20260101_000000-x/files/output.log", False),
        ("/home/ann/job/debug.log", False),
    ],
)
def test_which_logs_are_wandbs_own(path: str, is_one: bool) -> None:
    assert bool(lock_and_log_files._WANDB_LOG.search(path)) is is_one


def test_of_a_log_the_last_lines_remain_short_and_without_secrets() -> None:
    lines = [f"line {n}" for n in range(20)]
    lines[-3] = "x" * 1000
    lines[-2] = '{"api_key":"abc","level":"INFO"} password: hush Authorization: Bearer abcdefgh.ij'
    lines[-1] = "https://me:pass@api.example/graphql?token=abc"
    found = lock_and_log_files.parse_tail("\n".join(lines).encode())
    assert len(found) == lock_and_log_files.MOST_LOG_LINES
    assert len(found[-3]) == lock_and_log_files.MOST_LINE_CHARACTERS
    assert found[-2] == '{"api_key":"***","level":"INFO"} password: *** Authorization: Bearer ***'
    assert found[-1] == "https://me:***@api.example/graphql?token=***"


@given(st.binary(max_size=2000))
def test_any_log_has_a_tail(data: bytes) -> None:
    found = lock_and_log_files.parse_tail(data)
    assert len(found) <= lock_and_log_files.MOST_LOG_LINES + 1


def test_of_a_long_traceback_the_line_that_says_which_thread_it_ended_remains() -> None:
    frames = [line for n in range(6) for line in (f'  File "a.py", line {n}, in f', "    f()")]
    lines = ["an old line", "Exception in thread updater:", *frames, "KeyError: 'embedding'"]
    found = lock_and_log_files.parse_tail("\n".join(lines).encode())
    assert (found[0], found[-1]) == ("Exception in thread updater:", "KeyError: 'embedding'")
    assert len(found) == lock_and_log_files.MOST_LOG_LINES + 1


any_frame = st.builds(
    Frame,
    name=st.sampled_from(["FileBaton.wait", "wait", "_jit_compile", "acquire", "x"]),
    file=st.sampled_from([BATON.file, build("").file, SOFT, "", "/a.py"]),
    line=st.integers(),
    locals=st.lists(
        st.tuples(
            st.sampled_from(["build_directory", "self", "lock_filename"]),
            st.text() | st.sampled_from(["<SoftFileLock>", '"/b"', '"\0"', '"relative"']),
        )
    ).map(tuple),
)


@given(st.lists(any_frame, max_size=8))
def test_any_frames_with_any_locals_are_taken(frames: list[Frame]) -> None:
    lock_and_log_files.find_awaited_locks(1 << 30, [waits(*frames)])


# ---- what ranks printed --------------------------------------------------------------------------

Start = Callable[[Path], int]


@pytest.fixture
def start_printer() -> Iterator[Start]:
    """Start a process that prints to a file, and waits."""
    started = []

    def begin(path: Path) -> int:
        with path.open("a") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(600)"], stdout=file, stderr=file
            )
        started.append(process)
        return process.pid

    yield begin
    for process in started:
        process.kill()
        process.wait()


def test_the_file_of_a_rank_is_read_without_our_own_lines(
    start_printer: Start, tmp_path: Path
) -> None:
    path = tmp_path / "rank-1.log"
    of_torch = "[rank1]:[E1121 ProcessGroupNCCL.cpp:685] Watchdog caught collective timeout"
    ours = "[20:01:02.003][+1.000s][R1/2][LR1][PID:7] About to import torch..."
    path.write_text(f"{ours}\n{of_torch}\n")
    assert read_printed_lines([PrintingRank(1, start_printer(path))]) == {1: (of_torch,)}


def test_a_file_that_two_ranks_share_says_nothing_of_either(
    start_printer: Start, tmp_path: Path
) -> None:
    path = tmp_path / "slurm-7.out"
    path.write_text("whose is it?\n")
    assert (
        read_printed_lines(
            [PrintingRank(0, start_printer(path)), PrintingRank(1, start_printer(path))]
        )
        == {}
    )


def test_what_torchrun_keeps_of_a_dead_rank_is_next_to_its_error_file(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("Segmentation fault\n")
    found = read_printed_lines([PrintingRank(3, None, str(tmp_path / "error.json"))])
    assert found == {3: ("Segmentation fault",)}


@pytest.mark.parametrize("error_file", ["", "no/such/folder/error.json", "\0"])
def test_what_is_not_there_is_left_out(error_file: str) -> None:
    assert read_printed_lines([PrintingRank(0, None, error_file)]) == {}


def test_a_terminal_and_a_pipe_are_no_files(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=writer, stderr=writer
    ) as process:
        try:
            assert read_printed_lines([PrintingRank(0, process.pid)]) == {}
        finally:
            process.kill()
            os.close(reader)
            os.close(writer)


def test_a_file_that_we_write_to_as_well_says_nothing_of_a_rank(
    start_printer: Start, tmp_path: Path
) -> None:
    """As where the job and `attach` are started in one shell, whose output goes to a file."""
    path = tmp_path / "all-of-it.log"
    path.write_text("Whose is it?\n")
    printing = [PrintingRank(0, start_printer(path))]
    with path.open("a") as ours:
        assert read_printed_lines(printing, beside=[ours.fileno()]) == {}
        assert read_printed_lines(printing) == {0: ("Whose is it?",)}
    assert read_printed_lines(printing, beside=[10_000]) == {0: ("Whose is it?",)}


def test_lines_of_proc_locks() -> None:
    held = lock_and_log_files.parse_lock("1: FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF")
    assert held == lock_and_log_files.LockEntry(1, False, "FLOCK", 1234, (0xFE, 0, 131))
    waits = lock_and_log_files.parse_lock("1: -> POSIX  ADVISORY  WRITE 99 fe:00:131 0 EOF")
    assert waits == lock_and_log_files.LockEntry(1, True, "POSIX", 99, (0xFE, 0, 131))


def test_fdinfo_with_a_lock() -> None:
    lock = "1: FLOCK  ADVISORY  WRITE 5 fe:00:131 0 EOF"
    text = f"pos:\t12\nflags:\t02\nmnt_id:\t25\nino:\t131\nlock:\t{lock}\n"
    found = descriptors.parse_descriptor_info(text)
    assert found[:3] == (12, 25, 131)
    assert lock_and_log_files.parse_lock(found.locks[0]) is not None


@given(st.text())
def test_any_text_of_proc_is_taken(text: str) -> None:
    lock_and_log_files.parse_lock(text)
    lock_and_log_files.parse_mount_devices(text)


# ---- locks of real processes ---------------------------------------------------------------------


def test_a_lock_that_this_process_has_is_among_all_that_are_held(tmp_path: Path) -> None:
    with (tmp_path / "a.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        inode = os.fstat(file.fileno()).st_ino
        held = [one for one in lock_and_log_files.find_all_held_locks() if one.inode == inode]
        name = Path("/proc/self/comm").read_text().strip()
        assert held == [FileLock(file.name, inode, os.getpid(), name, waiting=False)]
    left = lock_and_log_files.find_all_held_locks()
    assert not [one for one in left if one.path == str(tmp_path / "a.lock")]


def test_a_lock_whose_taker_has_ended_is_of_who_inherited_it(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """flock(2): a lock belongs to the open file; a forked child has it when its parent is gone."""
    program = (
        "import fcntl, os, sys, time\n"
        "file = open(sys.argv[1])\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "if os.fork() == 0:\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(3600)\n"
    )
    path = tmp_path / "a.lock"
    path.touch()
    taker = start(sys.executable, "-I", "-S", "-c", program, path)
    assert taker.stdout is not None
    child = int(taker.stdout.readline())
    taker.wait(DEADLINE)
    with path.open() as file:  # as who asks for the lock has it open
        here = lock_and_log_files.read_open_files(os.getpid())
        known = lock_and_log_files.read_kernel_locks()
        wanted, held = lock_and_log_files.find_locks_of_process(os.getpid(), known, here)
        (lock,) = [one for one in wanted if one.path == file.name]
    assert (lock.holder, lock.waiting) == (child, False)
    assert file.name not in [one.path for one in held]


def test_a_lock_that_is_polled_for_is_found_by_its_frames_and_who_has_it_by_the_kernel(
    tmp_path: Path,
) -> None:
    with (tmp_path / "model.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        polls = Thread(5, None, False, False, (soft(file.name, "UnixFileLock"),))
        (lock,) = lock_and_log_files.find_polled_locks(1 << 30, [polls])
        assert (lock.path, lock.holder) == (file.name, os.getpid())
        # Nobody polls for what it has itself; nor is another lock one that it polls for.
        assert lock_and_log_files.find_polled_locks(os.getpid(), [polls]) == ()
        other = Thread(5, None, False, False, (soft("/no/such.lock", "UnixFileLock"),))
        assert lock_and_log_files.find_polled_locks(1 << 30, [other]) == ()


def test_a_lock_that_is_polled_for_by_a_relative_name_is_that_in_the_folder_of_the_poller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    polls = Thread(5, None, False, False, (soft("model.lock", "UnixFileLock"),))
    wanted = FileLock(str(tmp_path / "model.lock"), 5, 99, "other", waiting=False)
    another = replace(wanted, path=str(tmp_path / "other" / "model.lock"), inode=6)
    monkeypatch.setattr(lock_and_log_files, "find_all_held_locks", lambda: (another, wanted))
    monkeypatch.chdir(tmp_path)
    assert lock_and_log_files.find_polled_locks(os.getpid(), [polls]) == (wanted,)
    monkeypatch.chdir(tmp_path / "other")
    assert lock_and_log_files.find_polled_locks(os.getpid(), [polls]) == (another,)


def test_of_a_process_that_is_gone_no_files_are_known() -> None:
    assert lock_and_log_files.read_open_files(1 << 30).paths == {}
    assert lock_and_log_files.read_mount_devices(1 << 30) == {}
