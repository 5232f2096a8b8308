"""A signal does to a program below `hangbisect run` what it does without: it arrives, and once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial

from .side_by_side import Beside, Both, Started, at_once, marked

HANDED_ON = (
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM, signal.SIGINT),
    *(signal.SIGQUIT, signal.SIGALRM, signal.SIGWINCH, signal.SIGPIPE, signal.SIGRTMIN + 1),
    *(signal.SIGURG, signal.SIGCONT),
)
HEEDS = f"exec $RUN $PYTHON $PROGRAMS/heeds.py {' '.join(str(int(one)) for one in HANDED_ON)}"
DEADLY = (signal.SIGTERM, signal.SIGUSR1, signal.SIGQUIT)
LATER = 1.0  # seconds: who watches has had time to start, and to look


def settle(started: Started) -> None:
    """Wait until a program is ready, and what watches it as well."""
    started.until("ready\n")  # unbuffered, it is written in two parts
    time.sleep(LATER if started.is_watched else 0)


def each(send: Callable[[Started, int], None]) -> Callable[[Started], None]:
    """Return what sends each signal as `send` does, and waits until it has arrived."""

    def meanwhile(started: Started) -> None:
        settle(started)
        for number in HANDED_ON:
            send(started, number)
            started.until(f"got {int(number)}\n")
            time.sleep(0.05)  # one that comes twice is seen before the next
        (started.folder / "cwd" / "enough").touch()

    return meanwhile


def test_every_signal_to_the_command_reaches_the_program_once(beside: Beside) -> None:
    both = beside(HEEDS, meanwhile=each(lambda started, number: started.send(number))).check()
    assert both.plain.out.count("got") == len(HANDED_ON)


def test_a_signal_to_the_whole_group_reaches_the_program_once(beside: Beside) -> None:
    """`kill -- -PGID` and a terminal reach the program without anybody's help: a second signal is
    an order of its own to a program that counts them.
    """
    beside(HEEDS, meanwhile=each(lambda started, number: os.killpg(started.pid, number))).check()


def test_a_signal_to_every_process_of_a_step_ends_no_watch(beside: Beside) -> None:
    """A scheduler tells a step of its end so: every process of it, those of ours as well."""

    def send(started: Started, number: int) -> None:
        for pid in marked(started.folder):
            os.kill(pid, number)

    both = beside(HEEDS, meanwhile=each(send)).check("out")
    assert {*both.watched.out.splitlines()} == {*both.plain.out.splitlines()}, both
    assert both.watched.verdict.get("outcome") == "ok", both


def test_a_signal_that_ends_a_program_ends_it_below_us_with_the_same_status(beside: Beside) -> None:
    def run(number: int) -> Both:
        def send(started: Started) -> None:
            settle(started)
            started.send(number)

        return beside("exec $RUN $PYTHON $PROGRAMS/sleeps.py 100", meanwhile=send).check()

    for number, both in zip(DEADLY, at_once(*(partial(run, one) for one in DEADLY)), strict=True):
        assert both.plain.status == 128 + number


def test_three_signals_that_a_program_takes_are_no_order_to_kill_it(beside: Beside) -> None:
    """Reloads come seconds apart, and so does Ctrl-C in a debugger or a chat at the prompt."""

    def run(number: int, apart: float) -> Both:
        def send(started: Started) -> None:
            settle(started)
            for count in range(3):
                time.sleep(apart if started.is_watched else 0.1)
                started.send(number)
                started.until(f"reload {count + 1}")

        program = f"exec $RUN $PYTHON $PROGRAMS/reloads.py 3 {int(number)}"
        return beside(program, meanwhile=send).check()

    signals = ((signal.SIGHUP, 0.7), (signal.SIGINT, 2.5), (signal.SIGTERM, 0.3))
    for both in at_once(*(partial(run, *one) for one in signals)):
        assert both.plain.out.endswith("after 3 signals\n")


def test_a_killed_command_takes_the_program_with_it(beside: Beside) -> None:
    """`timeout -s KILL`, a parent's time limit: plainly nothing runs on, and so it is below us."""

    def run(to_all: bool) -> Both:
        def kill(started: Started) -> None:
            settle(started)
            for pid in started.ours() if to_all else ():
                os.kill(pid, signal.SIGKILL)
            started.send(signal.SIGKILL)

        # Where nobody of ours is left, nobody removes our folders. Of the program nothing is left.
        stays = "^(shm|tmp|xdg|slash_tmp)/hangbisect" if to_all else ""
        program = "exec $RUN $PYTHON $PROGRAMS/sleeps.py 100"
        return beside(program, meanwhile=kill, may_stay=stays).check()

    for both in at_once(partial(run, False), partial(run, True)):
        assert both.plain.status == 128 + signal.SIGKILL


def test_a_time_limit_of_the_shell_ends_it_all(beside: Beside) -> None:
    # Whether it is ready by then is the machine's.
    both = beside("timeout -s TERM 3 $RUN $PYTHON $PROGRAMS/sleeps.py 100").check("out")
    assert both.plain.status == 124


INHERITED = """
signals() { $RUN grep -E '^Sig(Blk|Ign)' /proc/self/status; }
signals
(trap '' PIPE; signals)
(trap '' HUP INT QUIT TERM USR1 USR2 CHLD TSTP TTIN TTOU XFSZ; signals)
nohup $RUN grep -E '^Sig(Blk|Ign)' /proc/self/status
env --block-signal=USR1,CHLD,TERM,RTMIN+1 $RUN grep -E '^Sig(Blk|Ign)' /proc/self/status
env --default-signal=PIPE,XFSZ $RUN grep -E '^Sig(Blk|Ign)' /proc/self/status
setsid -w $RUN grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status
"""


def test_what_is_ignored_and_blocked_is_inherited_unchanged(beside: Beside) -> None:
    assert beside(INHERITED).check().plain.out.count("SigBlk") == 7


def test_a_parent_that_ignores_its_children_gets_the_same_status(beside: Beside) -> None:
    """SIGCHLD ignored is inherited: then wait() of a process finds no child's status (wait(2))."""
    both = beside("trap '' CHLD; $RUN bash -c 'sleep 1; exit 7'; echo $?").check()
    assert both.plain.out == "7\n"


def test_a_program_whose_reader_leaves_dies_of_it_below_us(beside: Beside) -> None:
    beside("$RUN yes | head -n 2; echo ${PIPESTATUS[0]}").check()


BY_STATUS = """
for status in 1 127 255; do $RUN bash -c "exit $status"; echo $?; done
$RUN /no/such/program; echo $?
$RUN /dev/null; echo $?
"""
BY_SIGNAL = """
for number in 9 2; do $RUN $PYTHON $PROGRAMS/ends_by.py $number; echo $?; done
(ulimit -c unlimited; $RUN $PYTHON $PROGRAMS/ends_by.py 11; echo $?; rm -f core*)
$RUN $PYTHON -c 'raise KeyboardInterrupt'; echo $?
"""


def test_the_exit_status_is_the_programs_own(beside: Beside) -> None:
    # The shell names each process that a signal ended, with its pid.
    status, signals = at_once(*(partial(beside, script) for script in (BY_STATUS, BY_SIGNAL)))
    assert status.check("theirs").plain.out.split() == ["1", "127", "255", "127", "126"], status
    numbers = [line for line in signals.check("theirs").plain.out.split() if line.isdigit()]
    assert numbers == ["137", "130", "139", "130"], signals
