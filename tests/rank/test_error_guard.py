"""What fails of ours is left out; what a handler of the job's raises is not."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hangbisect.base.error_guard import ignore_our_errors, is_of_the_job
from hangbisect.rank.lines import write_within
from hangbisect.rank.link import encode_message

WAIT = 30.0  # seconds that our code would wait for room


class Late(Exception):
    """A time limit of the job's."""


def raise_late(number: int, frame: FrameType | None) -> None:
    raise Late


def raise_time_out(*_: Any) -> None:  # an OSError, as those of sockets and pipes
    raise TimeoutError("too late")


def raise_below(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # it is the handler no longer
    json.loads("no json")


class Handler:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise RuntimeError("by an object")

    def handle(self, number: int, frame: FrameType | None) -> None:
        raise RuntimeError("by a method")


def with_more(more: str, number: int, frame: FrameType | None) -> None:
    raise RuntimeError(more)


@pytest.fixture
def full() -> Iterator[int]:
    """A pipe that nobody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    yield writer
    for descriptor in (reader, writer):
        os.close(descriptor)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (raise_late, Late),
        (raise_time_out, TimeoutError),
        (raise_below, json.JSONDecodeError),
        (Handler(), RuntimeError),
        (Handler().handle, RuntimeError),
        (partial(with_more, "by a partial"), RuntimeError),
        (lambda *_: 1 / 0, ZeroDivisionError),
    ],
)
def test_what_a_handler_raises_while_our_code_waits_goes_on(
    handler: Any, kind: type[Exception], full: int
) -> None:
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(kind), ignore_our_errors():
        write_within(full, b"a line\n", WAIT)


def write_again_and_again(descriptor: int) -> None:
    """It is put in when this thread runs Python again."""
    for _ in range(100):
        write_within(descriptor, b"a line\n", WAIT / 1000)


def test_what_another_thread_puts_into_this_one_goes_on(full: int) -> None:
    def put(thread: int) -> None:
        time.sleep(0.1)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Late))

    threading.Thread(target=put, args=(threading.get_ident(),)).start()
    with pytest.raises(Late), ignore_our_errors():
        write_again_and_again(full)


class Odd:
    """What the job has, and our code asks."""

    def __str__(self) -> str:
        raise Late("only because we ask")


def test_what_fails_of_ours_is_left_out() -> None:
    with ignore_our_errors():
        encode_message({"t": "x", "value": Odd()})
    with ignore_our_errors():
        raise ValueError
    with ignore_our_errors(OSError):
        os.stat("/no/such/file")
    with pytest.raises(ValueError, match="of another kind"), ignore_our_errors(OSError):
        raise ValueError("of another kind")
    with pytest.raises(KeyboardInterrupt), ignore_our_errors():
        raise KeyboardInterrupt


def test_an_error_of_ours_that_was_raised_in_a_function_called_as_usual_is_ours() -> None:
    with pytest.raises(Late) as raised:
        encode_message({"t": "x", "value": Odd()})
    assert not is_of_the_job(raised.value)
