"""Whatever /proc holds, a reading ends without an exception: what is wrong is missing."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from hangbisect.evidence import (
    descriptors,
    kernel,
    lock_and_log_files,
    look,
    process,
    syscall_arguments,
)
from hangbisect.evidence.look import PartialLook, SharedTables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..examples import examples

ME = os.getpid()
_number = st.integers(-(2**70), 2**70).map(str)
_word = _number | st.sampled_from(
    ["->", "FLOCK", "0x7f", "(", ")", "Z", "D", "00:2a:7", "EOF", "²"]
)
_line = st.lists(_word, max_size=60).map(" ".join) | st.text(max_size=80)
_named = st.builds(
    "{}:\t{}".format,
    st.sampled_from(
        ["tfd", "lock", "pos", "ino", "mnt_id", "VmRSS", "NSpid", "TracerPid", "rchar"]
    ),
    _line,
)
_text = st.lists(_line | _named, max_size=6).map("\n".join)
# None: what the file really holds, cut short there.
_content = _text | st.integers(0, 200)


@contextlib.contextmanager
def proc_holding(contents: list[str | int], patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every file below /proc hold the next of these contents: a text, or the real one cut."""
    real, following = builtins.open, cycle(contents)

    def garbled(path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if not str(path).startswith("/proc/"):
            return real(path, mode, *args, **options)
        content = next(following)
        if isinstance(content, int):
            with real(path, "rb") as file:
                data = file.read(content)
        else:
            data = content.encode(errors="replace")
        return io.BytesIO(data) if "b" in mode else io.StringIO(data.decode(errors="replace"))

    with patch.context() as here:
        here.setattr(builtins, "open", garbled)
        yield


@given(st.lists(_content, min_size=1, max_size=12))
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_reading_of_garbage_ends(
    monkeypatch: pytest.MonkeyPatch, contents: list[str | int]
) -> None:
    found = PartialLook(0.0)
    with proc_holding(contents, monkeypatch):
        machine = SharedTables(
            descriptors._read_proc_net("self", "tcp"), tuple(lock_and_log_files.read_kernel_locks())
        )
        look.read_safe(ME, found, machine)
        look.read_risky(ME, found, machine)
        look.read_files(ME, found, logs=True)
        process.sample(ME, net={})
        process.exit_code(ME)
        syscall_arguments.thread_exists(ME, 5)
        syscall_arguments.read_epoll_set(ME, 0)
        lock_and_log_files.read_mount_devices(ME)
        kernel.find_frozen_group(ME)
    kernel.reason_not_to_pause(found.kernel)
    assert all(isinstance(sentence, str) for sentence in found.missing)


def test_a_file_that_vanishes_while_it_is_read_is_missing_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.open

    def vanished(path: Any, *args: Any, **options: Any) -> Any:
        if str(path).startswith("/proc/"):
            raise ProcessLookupError(3, "No such process")
        return real(path, *args, **options)

    found = PartialLook(0.0)
    with monkeypatch.context() as here:
        here.setattr(builtins, "open", vanished)
        look.read_safe(ME, found, SharedTables())
        look.read_risky(ME, found, SharedTables())
    assert (found.kernel, found.sample, found.command) == ((), None, ())
