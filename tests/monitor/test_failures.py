"""What fails in the watch is noted, said once, tried again, and ends nothing."""

from __future__ import annotations

import errno
import os
from typing import cast

import pytest
from hangbisect.base.events import Failed
from hangbisect.monitor.job import Job
from hangbisect.monitor.monitor_process import (
    DESCRIPTORS,
    ENOUGH_FAILURES,
    Failures,
    describe_shortage,
)


class Heard:
    """What a job is told by it."""

    def __init__(self) -> None:
        self.noted: list[Failed] = []
        self.said: list[str] = []

    def note(self, member: None, event: Failed) -> None:
        self.noted.append(event)

    def say(self, text: str) -> None:
        self.said.append(text)


def failures() -> tuple[Failures, Heard]:
    heard = Heard()
    return Failures(cast("Job", heard)), heard


def test_what_fails_is_noted_each_time_said_once_and_does_not_get_out() -> None:
    found, heard = failures()
    for _ in range(3):
        with found.of("look"):
            raise ValueError("no")
    assert [event.part for event in heard.noted] == ["look"] * 3
    assert "ValueError: no" in heard.noted[0].traceback
    assert heard.said == [
        "The watch could not look: ValueError('no'). The job goes on; what is left is watched on"
    ]


def test_a_shortage_is_said_once_whatever_lacks_it() -> None:
    found, heard = failures()
    told: list[str] = []
    found.happened = told.append
    for part in ("look", "judge the job"):
        with found.of(part):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    assert len(heard.said) == 1
    assert told == [DESCRIPTORS] * 2


def test_a_part_that_failed_is_tried_again_later_and_another_one_at_once() -> None:
    found, _ = failures()
    for _ in range(ENOUGH_FAILURES):
        assert not found.is_hopeless("look")
        with found.of("look"):
            raise ValueError
    assert found.is_hopeless("look")
    assert not found.is_due("look")
    assert found.is_due("judge")
    found.forgive("look")
    assert found.is_due("look")


def test_telling_that_fails_as_well_ends_nothing() -> None:
    found = Failures(cast("Job", object()))
    with found.of("look"):
        raise ValueError
    assert found.count == 1


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (MemoryError(), "memory"),
        (RuntimeError("can't start new thread"), "threads"),
        (BlockingIOError(errno.EAGAIN, "fork"), "processes"),
        (OSError(errno.ENOSPC, "write"), "space"),
        (OSError(errno.ENOENT, "open"), ""),
        (ValueError("too many open files"), ""),
    ],
)
def test_what_there_was_too_little_of(error: Exception, lacks: str) -> None:
    assert lacks in describe_shortage(error)
    assert bool(describe_shortage(error)) is bool(lacks)
