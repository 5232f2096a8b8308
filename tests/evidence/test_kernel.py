"""Threads, system calls and frozen groups, as the kernel tells them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hangbisect.base.process_facts import Kernel, Syscall
from hangbisect.evidence import kernel
from hypothesis import given
from hypothesis import strategies as st

from .own_threads import thread_in, wait_until

Start = Callable[..., subprocess.Popen[str]]
anything = st.one_of(st.text(), st.from_regex(r"[0-9a-f: \->()]{0,80}"))


def test_a_system_call_line() -> None:
    call = kernel.parse_syscall("7 0x7ffe 0x1 0xea60 0x0 0x0 0x0 0x7ffe68 0x7f01\n")
    assert call is not None
    assert (call.number, call.args, call.stack) == (7, (0x7FFE, 1, 60000, 0, 0, 0), 0x7FFE68)
    assert kernel.parse_syscall("running\n") is None
    assert kernel.parse_syscall("-1 0x7ffe 0x7f01\n") is None


@pytest.mark.parametrize(
    ("wchan", "name"), [("futex_do_wait", "futex"), ("hrtimer_nanosleep", "clock_nanosleep")]
)
def test_a_call_that_goes_on_after_a_stop_has_its_own_name(wchan: str, name: str) -> None:
    number = next(n for n in range(300) if kernel.syscall_name(n) == "restart_syscall")
    assert kernel.syscall_name(number, wchan) == name


def test_an_unknown_call_keeps_its_number() -> None:
    assert kernel.syscall_name(9999) == "syscall 9999"


def test_the_tables_of_both_machines_agree_on_names() -> None:
    both = [{*kernel._X86_64.values()}, {*kernel._AARCH64.values()}]
    known = both[0] | both[1]
    for table in (
        kernel.DESCRIPTOR_ARGUMENTS,
        kernel.PATH_ARGUMENT,
        kernel.TIMESPEC_ARGUMENT,
        kernel.MILLISECONDS_ARGUMENT,
    ):
        assert {*table} <= known
    assert known >= kernel.CUT_BY_A_PAUSE
    assert both[1] <= both[0]


def test_a_pause_would_end_a_semop_in_any_thread_and_an_epoll_only_in_the_main_one() -> None:
    """A C library that waits for a semaphore in a helper thread took EINTR for leave to go on."""

    def waits(tid: int, name: str) -> Kernel:
        return Kernel(tid, "python", "S", "", Syscall(0, name, ()))

    for name in ("semop", "semtimedop", "msgrcv", "msgsnd"):
        assert name in kernel.reason_not_to_pause((waits(1, "futex"), waits(2, name)))
    assert kernel.reason_not_to_pause((waits(1, "futex"), waits(2, "epoll_wait"))) == ""
    assert "epoll" in kernel.reason_not_to_pause((waits(1, "epoll_wait"), waits(2, "futex")))


def test_a_pause_would_cut_a_write_short() -> None:
    """One that has put a part into a pipe returns how much (pipe(7), write(2)): os.write gives that
    to the program, and one that does not ask goes on with the half of it.
    """
    for name in ("write", "writev"):
        call = Kernel(1, "python", "S", "pipe_write", Syscall(0, name, ()))
        assert name in kernel.reason_not_to_pause((call,))
    assert kernel.reason_not_to_pause((Kernel(1, "", "S", "", Syscall(0, "read", ())),)) == ""


def test_pending_signals_and_tracer() -> None:
    text = "Name:\tx\nTracerPid:\t77\nSigPnd:\t0000000000000002\nShdPnd:\t0000000000004000\n"
    assert kernel.parse_process_status(text) == kernel.ProcessStatus(77, (2, 15))


def test_memory_and_swap() -> None:
    text = "Name:\tx\nVmRSS:\t    2048 kB\nVmSwap:\t       1 kB\nVmData:\t7 kB\n"
    assert kernel.parse_process_status(text) == kernel.ProcessStatus(0, (), 2048 * 1024, 1024)


@given(anything)
def test_any_text_of_proc_is_taken(text: str) -> None:
    kernel.parse_syscall(text)
    kernel.parse_process_status(text)
    kernel.parse_cgroups(text)
    list(kernel.parse_cgroup_mounts(text))


# ---- threads of this process ---------------------------------------------------------------------


def test_a_thread_that_waits_for_input_counts_how_often_it_was_woken() -> None:
    """The second wait is one more (voluntary_ctxt_switches, proc_pid_status(5))."""
    reader, writer = os.pipe()

    def read_twice() -> None:
        os.read(reader, 1)
        os.read(reader, 1)

    with thread_in("read", read_twice, lambda: os.write(writer, b"x")) as thread:
        assert thread.waits is not None
        assert thread.syscall is not None
        first = thread.waits
        os.write(writer, b"x")
        later = wait_until(lambda: read_thread(thread.tid), lambda now: (now.waits or 0) > first)
        assert later.syscall is not None
        assert later.syscall.name == "read"
        assert later.syscall.stack == thread.syscall.stack  # it stands where it stood
    os.close(reader)
    os.close(writer)


def test_of_a_thread_that_waits_for_a_lock_no_waits_are_counted() -> None:
    """What wakes it is another thread, and no input."""
    lock = threading.Lock()
    lock.acquire()
    with thread_in("futex", lock.acquire, lock.release) as thread:
        assert thread.waits is None


def test_what_a_helper_thread_has_written_is_counted(tmp_path: Path) -> None:
    """/proc/PID/task/TID/io, wchar (proc_pid_io(5)): of this thread alone."""
    reader, writer = os.pipe()

    def write_and_wait() -> None:
        (tmp_path / "out").write_bytes(bytes(123_456))
        os.read(reader, 1)

    with thread_in("read", write_and_wait, lambda: os.write(writer, b"x")) as thread:
        assert thread.written is not None
        assert 123_456 <= thread.written < 130_000
    os.close(reader)
    os.close(writer)


def test_all_threads_are_listed_with_their_names_the_main_one_first() -> None:
    lock = threading.Lock()
    lock.acquire()
    with thread_in("futex", lock.acquire, lock.release) as thread:
        Path(f"/proc/self/task/{thread.tid}/comm").write_text("pt_autograd_0")
        missing: list[str] = []
        threads = kernel.read_threads(os.getpid(), missing)
    assert threads[0].tid == os.getpid()
    assert {one.tid: one.comm for one in threads}[thread.tid] == "pt_autograd_0"
    assert missing == []


def test_of_very_many_threads_some_are_read_and_it_is_said_how_many(start: Start) -> None:
    more = kernel.MOST_THREADS + 4
    program = (
        "import threading\n"
        "threading.stack_size(1 << 16)\n"
        "end = threading.Event()\n"
        f"for _ in range({more} - 1): threading.Thread(target=end.wait, daemon=True).start()\n"
        "print(flush=True)\n"
        "input()\n"
    )
    process = start(sys.executable, "-I", "-S", "-c", program, stdin=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    missing: list[str] = []
    assert len(kernel.read_threads(process.pid, missing)) == kernel.MOST_THREADS
    assert missing == [
        f"Only {kernel.MOST_THREADS} of the {more} threads of {process.pid} were looked at."
    ]


def test_a_process_that_is_gone_has_no_threads_and_no_group() -> None:
    missing: list[str] = []
    assert kernel.read_threads(1 << 30, missing) == ()
    assert kernel.read_thread(1 << 30, 1 << 30, missing) is None
    assert kernel.read_status(1 << 30) == kernel.ProcessStatus(0, ())
    assert kernel.find_frozen_group(1 << 30) == ""
    assert missing == []


def test_a_signal_that_waits_to_be_taken_is_pending() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        found = kernel.read_status(threading.get_native_id())
        assert found.signals_pending == (signal.SIGUSR1,)
        signal.sigtimedwait([signal.SIGUSR1], 0)
        found = kernel.read_status(threading.get_native_id())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert found.signals_pending == ()
    assert found.tracer == 0
    assert found.memory is not None
    assert found.memory > 1 << 20


def test_a_stopped_process_must_not_be_paused(start: Start) -> None:
    process = start(sys.executable, "-I", "-S", "-c", "input()", stdin=subprocess.PIPE)
    assert kernel.reason_not_to_pause(kernel.read_threads(process.pid, [])) == ""
    os.kill(process.pid, signal.SIGSTOP)
    threads = wait_until(
        lambda: kernel.read_threads(process.pid, []), lambda found: found[0].state == "T"
    )
    assert kernel.reason_not_to_pause(threads) == "it is stopped"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("t", "it is stopped"),  # by a debugger
        ("D", "it is in the kernel, where a debugger would wait for it"),
        ("S", ""),
        ("R", ""),
    ],
)
def test_what_a_debugger_would_wait_for(state: str, reason: str) -> None:
    assert kernel.reason_not_to_pause((Kernel(1, "python", state, "", None),)) == reason
    assert kernel.reason_not_to_pause(()) == ""


@pytest.mark.parametrize(
    ("call", "waits"),
    [
        (Syscall(0, "recvfrom", (3, 0, 0, 0, 0, 0)), True),
        (Syscall(0, "poll", (0, 1, 0xFFFFFFFF, 0, 0, 0)), True),  # -1: without a limit
        (Syscall(0, "poll", (0, 1, 5000, 0, 0, 0)), False),
        (Syscall(0, "write", (3, 0, 0, 0, 0, 0)), False),
        (Syscall(0, "futex", (0, 0, 0, 0, 0, 0)), False),
    ],
)
def test_which_calls_return_only_when_something_comes(call: Syscall, waits: bool) -> None:
    assert kernel.may_wait_for_input(call) is waits


@pytest.mark.parametrize(
    ("wchan", "name"),
    [("poll_schedule_timeout.constprop.0", "poll"), ("", "restart_syscall")],
)
def test_a_poll_goes_on_after_a_stop_and_what_is_not_told_keeps_its_name(
    wchan: str, name: str
) -> None:
    number = next(n for n in range(300) if kernel.syscall_name(n) == "restart_syscall")
    assert kernel.syscall_name(number, wchan) in (name, "p" + name)  # aarch64 has ppoll alone


# ---- frozen groups -------------------------------------------------------------------------------

HYBRID = """\
12:freezer:/job_7/step_0
5:cpu,cpuacct:/user.slice
1:name=systemd:/user.slice
0::/system.slice/slurmd.service
garbage
"""
MOUNTS = """\
30 23 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
36 30 0:32 / /sys/fs/cgroup/freezer rw,nosuid - cgroup cgroup rw,freezer
37 30 0:33 / /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu,cpuacct
38 30 0:34 / /sys/fs/cgroup/x rw
"""


def test_the_groups_of_both_versions_of_cgroups() -> None:
    """cgroups(7), "/proc/PID/cgroup": the second version has the number 0, and no names."""
    assert kernel.parse_cgroups(HYBRID) == {
        "cgroup": "/job_7/step_0",
        "cgroup2": "/system.slice/slurmd.service",
    }


def test_the_mounts_that_can_tell_of_a_freezer() -> None:
    assert list(kernel.parse_cgroup_mounts(MOUNTS)) == [
        ("cgroup2", Path("/sys/fs/cgroup/unified")),
        ("cgroup", Path("/sys/fs/cgroup/freezer")),
    ]


@pytest.mark.parametrize(
    ("text", "frozen"),
    [
        ("populated 1\nfrozen 1\n", True),
        ("populated 1\nfrozen 0\n", False),
        ("FROZEN\n", True),
        ("FREEZING\n", False),
        ("THAWED\n", False),
        ("", False),
    ],
)
def test_what_the_kernel_writes_of_a_group(text: str, frozen: bool) -> None:
    """Linux's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/freezer-subsystem.rst."""
    assert kernel.parse_frozen(text) is frozen


def test_a_process_that_runs_is_in_no_frozen_group() -> None:
    assert kernel.find_frozen_group(os.getpid()) == ""


def read_thread(tid: int) -> Kernel:
    found = kernel.read_thread(os.getpid(), tid, [])
    assert found is not None
    return found


def test_a_handler_for_the_signal_of_a_timer_is_seen() -> None:
    before = signal.signal(signal.SIGVTALRM, lambda *_: None)
    try:
        assert signal.SIGVTALRM in kernel.read_status(os.getpid()).timer_signals
    finally:
        signal.signal(signal.SIGVTALRM, before)
    assert signal.SIGVTALRM not in kernel.read_status(os.getpid()).timer_signals
