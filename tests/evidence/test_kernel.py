"""Threads, system calls and frozen groups, as the kernel tells them."""

from __future__ import annotations

import pytest
from hangbisect.base.process_facts import Kernel, Syscall
from hangbisect.evidence import kernel
from hypothesis import given
from hypothesis import strategies as st

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


def test_pending_signals_and_tracer() -> None:
    text = "Name:\tx\nTracerPid:\t77\nSigPnd:\t0000000000000002\nShdPnd:\t0000000000004000\n"
    assert kernel.parse_status(text) == kernel.ProcessStatus(77, (2, 15))


def test_memory_and_swap() -> None:
    text = "Name:\tx\nVmRSS:\t    2048 kB\nVmSwap:\t       1 kB\nVmData:\t7 kB\n"
    assert kernel.parse_status(text) == kernel.ProcessStatus(0, (), 2048 * 1024, 1024)


@given(anything)
def test_any_text_of_proc_is_taken(text: str) -> None:
    kernel.parse_syscall(text)
    kernel.parse_status(text)
    kernel.parse_cgroups(text)
    list(kernel.parse_cgroup_mounts(text))
