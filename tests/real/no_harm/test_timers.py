"""Timers, time limits and exceptions of the user's own do what they do without us."""

from __future__ import annotations

import pytest

from .side_by_side import Beside, can_mount

NO_PY_SPY = 'mount --bind /dev/null "$(dirname $PYTHON)/py-spy"; PATH=/usr/bin:/bin; '


@pytest.mark.parametrize("before", ["", NO_PY_SPY], ids=["as it is", "no py-spy"])
@pytest.mark.parametrize("refused", ["", "$PYTHON $PROGRAMS/without.py ptrace,process_vm_readv "])
def test_the_users_own_watchdog_fires(beside: Beside, before: str, refused: str) -> None:
    """Python's faulthandler has one timer, and it is the user's (dump_traceback_later())."""
    if before and not can_mount():
        pytest.skip("no mount namespace may be made here")
    script = f"{before}{refused}$RUN $PYTHON $PROGRAMS/watchdog.py 2>/dev/null; echo $?"
    both = beside(script).check()
    assert both.plain.out == "trains\n1\n", both


@pytest.mark.parametrize("how", ["alarm", "itimer", "thread"])
def test_the_users_own_time_limit_is_raised(beside: Beside, how: str) -> None:
    """An exception of a signal's handler may come while our code runs: it is the user's."""
    script = f"{{ $RUN $PYTHON $PROGRAMS/limited.py {how} 2>&1 >&3 | (sleep 6; wc -l); }} 3>&1"
    both = beside(script).check("out")  # its last line counts bytes, those of our lines too
    for run in (both.plain, both.watched):
        assert run.out.startswith("Late raised\n"), both


def test_many_exceptions_of_a_handler_all_arrive(beside: Beside) -> None:
    """One every few milliseconds, while steps begin and end: none is taken by code of ours."""
    both = beside("$RUN $PYTHON $PROGRAMS/interrupts.py 100").check()
    assert both.plain.out == "100 of 100\n", both


def test_an_alarm_that_was_set_before_the_program_rings_in_it(beside: Beside) -> None:
    """Alarms outlive execve(2): `perl -e 'alarm 2; exec @ARGV' COMMAND` is a known time limit."""
    script = "perl -e 'alarm 2; exec @ARGV' $RUN $PYTHON $PROGRAMS/sleeps.py 30"
    both = beside(f"{script}; echo $?").check("theirs")
    assert both.plain.out == "ready\n142\n", both


def test_exceptions_and_exits_at_the_end_are_the_programs(beside: Beside) -> None:
    for end in ("raises", "exit_hook", "thread_raises", "hook_raises", "none", "text"):
        both = beside(f"$RUN $PYTHON $PROGRAMS/ends.py {end}; echo $?")
        both.check()
        assert both.plain.out, both
