"""Calls that block for ever are left behind, and the caller goes on."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest
from hangbisect.base.deadline import MOST_OUTPUT, call_with_limit, run_command, within


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Something to wait for, opened at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def test_what_a_call_returns_or_raises_comes_back() -> None:
    assert asyncio.run(call_with_limit(divmod, 7, 2, limit=60)) == (3, 1)
    assert within(60, divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(call_with_limit(divmod, 1, 0, limit=60))
    with pytest.raises(ZeroDivisionError):
        within(60, divmod, 1, 0)


def test_a_call_that_blocks_is_left_and_not_made_again(gate: threading.Event) -> None:
    calls = []

    def block() -> None:
        calls.append(1)
        gate.wait()

    for _ in range(3):
        with pytest.raises(TimeoutError):
            asyncio.run(call_with_limit(block, limit=0.05, key="block"))
    assert len(calls) == 1
    with pytest.raises(TimeoutError):
        within(0.05, gate.wait)


def test_a_thread_that_ends_before_its_first_step_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("_thread.start_new_thread", lambda body, args: 1)  # as without memory
    with pytest.raises(TimeoutError):
        asyncio.run(call_with_limit(divmod, 7, 2, limit=0.05))
    with pytest.raises(TimeoutError):
        within(0.05, divmod, 7, 2)


def test_two_calls_at_one_time_do_not_refuse_each_other(gate: threading.Event) -> None:
    async def both() -> list[bool]:
        asyncio.get_running_loop().call_later(0.1, gate.set)
        return await asyncio.gather(
            *(call_with_limit(gate.wait, limit=60, key="both") for _ in range(2))
        )

    assert asyncio.run(both()) == [True, True]


def test_a_program_that_prints_without_end_is_killed() -> None:
    program = "import os\nwhile True:\n    os.write({}, b'x' * 65536)"
    for descriptor in (1, 2):
        ran = run_command([sys.executable, "-c", program.format(descriptor)], 60)
        assert (ran.status, ran.printed_too_much) == (None, True)
        assert MOST_OUTPUT < len(ran.out) + len(ran.err) < MOST_OUTPUT + (1 << 18)


def test_what_a_program_prints_comes_back_whole() -> None:
    program = "import os, sys; os.write(1, b'x' * 1000000); os.write(2, b'oops'); sys.exit(4)"
    ran = run_command([sys.executable, "-c", program], 60)
    assert (ran.status, len(ran.out), ran.err, ran.printed_too_much) == (4, 10**6, "oops", False)


def test_a_program_that_does_not_end_is_killed() -> None:
    ran = run_command([sys.executable, "-c", "import time; time.sleep(1000)"], 0.2)
    assert ran.status is None
    assert run_command([sys.executable, "-c", "raise SystemExit(3)"], 60).status == 3
    with pytest.raises(OSError, match="no such program"):
        run_command(["/no such program"], 60)
