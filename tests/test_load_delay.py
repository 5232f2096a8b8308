"""What watches is loaded when there is room for it, and in time for the clocks of the watch."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import pytest
from hangbisect.base import loading
from hangbisect.base.loading import DelayLimits, LoadDelay, is_processor_idle, limit_delay
from hypothesis import given
from hypothesis import strategies as st

SECONDS = st.floats(0.1, 1e6)


@given(SECONDS, st.none() | SECONDS)
def test_it_is_over_before_the_first_clock_is(stall: float, limit: float | None) -> None:
    limits = limit_delay(stall, limit)
    assert 0 < limits.least <= limits.most <= min(stall, limit or stall) / 4


@pytest.mark.parametrize("more", [-1, 0, 1, 100])
def test_a_processor_is_idle_where_no_more_want_to_run(more: int, tmp_path: Path) -> None:
    file = tmp_path / "loadavg"
    running = max(1, (os.cpu_count() or 1) + more)  # the one that asks among them
    file.write_text(f"0.20 0.18 0.12 {running}/80 11206\n")
    assert is_processor_idle(str(file)) is (more <= 0)


@pytest.mark.parametrize("text", ["", "0.20 0.18\n", "a b c d e\n"])
def test_where_it_is_not_told_none_is_waited_for(text: str, tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text(text)
    assert is_processor_idle(str(tmp_path / "loadavg"))
    assert is_processor_idle(str(tmp_path / "none"))


def test_it_lasts_until_a_processor_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = iter([True, False, True, True])
    monkeypatch.setattr(loading, "is_processor_idle", lambda: next(idle))
    one = LoadDelay(DelayLimits(10.0, 20.0), since=time.monotonic() - 12.0)
    assert [bool(one.next_wait()) for _ in range(4)] == [True, True, True, False]


def test_it_does_not_last_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "is_processor_idle", lambda: False)
    assert LoadDelay(DelayLimits(1.0, 20.0), since=time.monotonic() - 19.9).next_wait() <= 0.1
    assert LoadDelay(DelayLimits(1.0, 20.0), since=time.monotonic() - 20.1).next_wait() == 0.0


def test_a_word_ends_it() -> None:
    reader, writer = os.pipe()
    try:
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        assert not LoadDelay(DelayLimits(0.0, 0.0)).wait_for(poll)
        os.write(writer, b"x")
        assert LoadDelay(DelayLimits(60.0, 60.0)).wait_for(poll)
    finally:
        os.close(reader)
        os.close(writer)
