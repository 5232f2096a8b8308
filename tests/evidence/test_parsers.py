"""Whatever the kernel or py-spy writes, a parser returns; what is right, it understands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hangbisect.base import proc
from hangbisect.base.process_facts import Descriptor, Frame, Kernel, Syscall
from hangbisect.evidence import (
    descriptors,
    kernel,
    lock_and_log_files,
    process,
    stacks,
    syscall_arguments,
)
from hypothesis import given
from hypothesis import strategies as st

STAT = (
    "4296 (a) b (c) S 4293 4293 2264 0 -1 4194304 1142 0 7 0 11 5 0 0 20 0 2 0 100890 88821760 "
    "2540 18446744073709551615 1 2 3 0 0 0 0 16781318 0 0 0 0 17 1 0 0 0 0 0 1 2 3 4 5 6 7 256"
)


def test_a_stat_line_with_brackets_in_the_name() -> None:
    found = proc.parse_stat(STAT)
    assert found == proc.Stat(
        *("a) b (c", "S", 4293, 7, 16, 100890, 256),
        group=4293,
        terminal=0,
        foreground=-1,
    )


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


def test_a_line_of_proc_net_tcp() -> None:
    line = "0: 0100007F:1F90 0200007F:C350 01 00000000:00000000 00:00000000 00000000 0 0 4242 1 0"
    found = descriptors.parse_proc_net(line, "tcp")
    assert found is not None
    assert (found.inode, found.state) == (4242, "ESTABLISHED")
    assert (found.local, found.peer) == ("127.0.0.1:8080", "127.0.0.2:50000")


def test_pending_signals_and_tracer() -> None:
    text = "Name:\tx\nTracerPid:\t77\nSigPnd:\t0000000000000002\nShdPnd:\t0000000000004000\n"
    assert kernel.parse_status(text) == kernel.ProcessStatus(77, (2, 15))


def test_memory_and_swap() -> None:
    text = "Name:\tx\nVmRSS:\t    2048 kB\nVmSwap:\t       1 kB\nVmData:\t7 kB\n"
    assert kernel.parse_status(text) == kernel.ProcessStatus(0, (), 2048 * 1024, 1024)


@pytest.mark.parametrize(
    ("link", "kind"),
    [
        ("socket:[1]", "socket"),
        ("pipe:[1]", "pipe"),
        ("anon_inode:[eventpoll]", "anon"),
        ("/dev/pts/0", "tty"),
        ("/dev/nvidia0", "device"),
        ("/dev/shm/x", "file"),
        ("/memfd:x (deleted)", "file"),
        ("/data/x", "file"),
        ("net:[4026531840]", "unknown"),
    ],
)
def test_what_a_descriptor_is(link: str, kind: str) -> None:
    assert descriptors.classify_link(link) == kind


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


def test_what_an_epoll_waits_for() -> None:
    text = "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data:  5\ntfd:  x events: 1\ntfd:\n"
    assert syscall_arguments.parse_epoll_set(text) == [5]


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


class NoMemory:
    """Memory that holds nothing, or garbage."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, address: int, size: int) -> bytes | None:
        return self.data[:size] or None

    def string(self, address: int) -> str | None:
        return None

    def timespec(self, address: int, fraction: float = 1e-9) -> float | None:
        return None


@given(
    st.sampled_from(sorted(kernel._X86_64.values())),
    st.tuples(*[st.integers(0, 2**64 - 1)] * 6),
    st.binary(max_size=600),
)
def test_arguments_of_any_call_never_raise(name: str, args: tuple[int, ...], data: bytes) -> None:
    call = syscall_arguments.decode_syscall(
        Syscall(0, name, args), NoMemory(data), lambda fd: Descriptor(fd, "unknown", ""), 2**31
    )
    assert call.name == name


def test_the_descriptors_of_poll_and_the_path_of_a_unix_connect() -> None:
    poll = b"\x05\0\0\0\x01\0\0\0" + b"\xff\xff\xff\xff\x01\0\0\0"
    call = Syscall(7, "poll", (1, 2, 0xFFFFFFFF, 0, 0, 0))
    found = syscall_arguments.decode_syscall(
        call, NoMemory(poll), lambda fd: Descriptor(fd, "file", ""), 1
    )
    assert [one.fd for one in found.descriptors] == [5]
    assert found.timeout is None
    call = Syscall(42, "connect", (3, 1, 110, 0, 0, 0))
    found = syscall_arguments.decode_syscall(
        call, NoMemory(b"\x01\0/run/s\0..."), lambda fd: Descriptor(fd, "socket", ""), 1
    )
    assert found.path == "/run/s"


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


@given(anything)
def test_text_parsers_never_raise(text: str) -> None:
    proc.parse_stat(text)
    kernel.parse_syscall(text)
    kernel.parse_status(text)
    lock_and_log_files.parse_lock(text)
    lock_and_log_files.parse_mount_devices(text)
    descriptors.parse_descriptor_info(text)
    descriptors.classify_link(text)
    descriptors.parse_proc_net(text, "tcp")
    descriptors.parse_socket_inode(text)
    stacks.parse_faulthandler(text, 1)
    stacks.parse_pystack(text, 1)
    syscall_arguments.parse_epoll_set(text)
    stacks.parse_py_spy(text, 1)


@given(st.binary(max_size=400))
def test_netlink_parsers_never_raise(data: bytes) -> None:
    for _, body in descriptors.parse_netlink_messages(data):
        descriptors.parse_inet_diag(body, "tcp")
        descriptors.parse_unix_diag(body)
    descriptors.parse_inet_diag(data, "tcp6")
    descriptors.parse_unix_diag(data)


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


def test_preloaded_libraries_are_split_as_the_loader_does() -> None:
    parse = process.parse_preloaded
    assert parse("/a/libx.so:libjemalloc.so.2 /b/y.so", "/etc/z.so\n# not this\n") == (
        *("/a/libx.so", "libjemalloc.so.2", "/b/y.so"),
        "/etc/z.so",
    )
    assert parse("", "") == ()
