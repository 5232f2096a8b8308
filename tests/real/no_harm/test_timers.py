"""Timers, time limits and exceptions of the user's own do what they do without us."""

from __future__ import annotations

from functools import partial
from itertools import product

from .side_by_side import Beside, Both, at_once, can_mount

NO_PY_SPY = 'mount --bind /dev/null "$(dirname $PYTHON)/py-spy"; PATH=/usr/bin:/bin; '


def test_the_users_own_watchdog_fires(beside: Beside) -> None:
    """Python's faulthandler has one timer, and it is the user's (dump_traceback_later())."""

    def run(before: str, refused: str) -> Both:
        script = f"{before}{refused}$RUN $PYTHON $PROGRAMS/watchdog.py 2>/dev/null; echo $?"
        return beside(script).check()

    refused = ("", "$PYTHON $PROGRAMS/without.py ptrace,process_vm_readv ")
    ways = product(["", NO_PY_SPY] if can_mount() else [""], refused)
    for both in at_once(*(partial(run, *way) for way in ways)):
        assert both.plain.out == "trains\n1\n", both


def test_the_users_own_time_limit_is_raised(beside: Beside) -> None:
    """An exception of a signal's handler may come while our code runs: it is the user's."""

    def run(how: str) -> Both:
        script = f"{{ $RUN $PYTHON $PROGRAMS/limited.py {how} 2>&1 >&3 | (sleep 6; wc -l); }} 3>&1"
        return beside(script).check("out")  # its last line counts bytes, those of our lines too

    for both in at_once(*(partial(run, how) for how in ("alarm", "itimer", "thread"))):
        for one in (both.plain, both.watched):
            assert one.out.startswith("Late raised\n"), both


def test_many_exceptions_of_a_handler_all_arrive(beside: Beside) -> None:
    """One every few milliseconds, while steps begin and end: none is taken by code of ours."""
    both = beside("$RUN $PYTHON $PROGRAMS/interrupts.py 100").check()
    assert both.plain.out == "100 of 100\n", both


def test_an_alarm_that_was_set_before_the_program_rings_in_it(beside: Beside) -> None:
    """Alarms outlive execve(2): `perl -e 'alarm 2; exec @ARGV' COMMAND` is a known time limit."""
    script = "perl -e 'alarm 3; exec @ARGV' $RUN $PYTHON $PROGRAMS/sleeps.py 100"
    # Whether it is ready by then is the machine's.
    both = beside(f"{script}; echo $?").check("theirs", "out")
    for run in (both.plain, both.watched):
        assert run.out.endswith("142\n"), both


def test_exceptions_and_exits_at_the_end_are_the_programs(beside: Beside) -> None:
    def run(end: str) -> Both:
        return beside(f"$RUN $PYTHON $PROGRAMS/ends.py {end}; echo $?").check()

    ends = ("raises", "exit_hook", "thread_raises", "hook_raises", "none", "text")
    for both in at_once(*(partial(run, end) for end in ends)):
        assert both.plain.out, both
