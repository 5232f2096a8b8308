"""At a terminal: Ctrl-C, Ctrl-Z, fg, its size, and who may read from it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jobs
import pytest

from ..terminal_here import Terminal
from .side_by_side import FAKE_TORCH, HANGBISECT, PROGRAMS, Beside, Started, at_once, marked

AT = "AT THE PROMPT "
Do = Callable[["Shell"], None]


class Shell:
    """bash at a terminal, as a person has it, in a folder of the test's."""

    def __init__(self, is_watched: bool) -> None:
        self.folder, self.is_watched = Path(tempfile.mkdtemp(prefix="shell-")), is_watched
        self.terminal = Terminal(100, 40)
        environ = {
            **jobs.clean_environ(),
            **{"PS1": AT, "TERM": "xterm", "NO_COLOR": "1", "PYTHONPATH": str(FAKE_TORCH)},
            **{"HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder)},
            **{"TMPDIR": str(self.folder), jobs.MARK: str(self.folder)},
        }
        self.terminal.start(["bash", "--norc", "--noprofile", "-i"], environ)
        self.at_prompt(1)

    def run(self, words: str) -> None:
        """Type a command; "$RUN " becomes nothing, or our words."""
        ours = f"{HANGBISECT} run --run-dir {self.folder}/run --stall 3 --on-hang end -- "
        text = words.replace("$RUN ", ours if self.is_watched else "")
        text = text.replace("$PYTHON", sys.executable).replace("$PROGRAMS", str(PROGRAMS))
        script = self.folder / "typed.sh"  # a short line: none is wrapped
        script.write_text(text + "\n")
        self.terminal.type(f". {script}\n")

    def until(self, text: str) -> None:
        """Wait until it stands on the screen."""
        self.terminal.until(lambda lines: text in "\n".join(self.terminal.everything()))

    def at_prompt(self, times: int) -> None:
        """Wait until the shell has asked so often."""
        self.terminal.until(
            lambda lines: "\n".join(self.terminal.everything()).count(AT.strip()) >= times
        )

    def lines(self) -> list[str]:
        """What programs have printed, without our lines and what was typed."""
        lines = (re.search(r"(got .*|status \d+)", one) for one in self.terminal.everything())
        return [found.group(1) for found in lines if found is not None]

    def end(self) -> None:
        """Close the window."""
        for pid in marked(self.folder):
            os.kill(pid, signal.SIGKILL)
        self.terminal.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def shells() -> Iterator[Callable[[bool], Shell]]:
    """Open terminals; they are closed with the test."""
    opened: list[Shell] = []

    def make(is_watched: bool) -> Shell:
        opened.append(Shell(is_watched))
        return opened[-1]

    yield make
    for shell in opened:
        shell.end()


def same(shells: Callable[[bool], Shell], do: Do) -> list[str]:
    """Do something at a terminal in both ways; return what was printed, which is the same."""
    plain, watched = shells(False), shells(True)
    at_once(partial(do, plain), partial(do, watched))
    everything = "\n".join(watched.terminal.everything())
    assert watched.lines() == plain.lines(), everything
    assert "HANG" not in everything, everything
    return plain.lines()


def test_ctrl_c_reaches_the_program_once(shells: Callable[[bool], Shell]) -> None:
    def do(shell: Shell) -> None:
        shell.run("$RUN $PYTHON $PROGRAMS/at_terminal.py INT 3; echo status $?")
        shell.until("ready")
        for count in range(3):
            time.sleep(2.2 if shell.is_watched else 0.1)  # who presses it twice at once means it
            shell.terminal.type("\x03")
            shell.until(f"got {count + 1}")
        shell.until("status 0")

    assert same(shells, do) == ["got 1", "got 2", "got 3", "status 0"]


def test_a_job_that_is_stopped_goes_on_where_it_was(shells: Callable[[bool], Shell]) -> None:
    """Ctrl-Z for longer than the stall, then fg: neither is a hang, and nothing is ended."""

    def do(shell: Shell) -> None:
        shell.run("$RUN $PYTHON $PROGRAMS/at_terminal.py CONT 1; echo status $?")
        shell.until("ready")
        shell.terminal.type("\x1a")
        shell.until("Stopped")
        time.sleep(9 if shell.is_watched else 0.5)
        shell.terminal.type("fg\n")
        shell.until("got 1")
        time.sleep(1)

    same(shells, do)


def test_a_program_reads_from_its_terminal(shells: Callable[[bool], Shell]) -> None:
    def do(shell: Shell) -> None:
        shell.run("$RUN $PYTHON $PROGRAMS/at_terminal.py asks; echo status $?")
        shell.until("name?")
        shell.terminal.type("Ada\n")
        shell.until("got Ada")
        shell.until("password?")
        time.sleep(0.3)
        shell.terminal.type("hidden\n")
        shell.until("status")

    assert same(shells, do) == ["got Ada", "got hidden", "status 0"]


def test_a_new_size_of_the_window_reaches_the_program(shells: Callable[[bool], Shell]) -> None:
    def do(shell: Shell) -> None:
        shell.run("$RUN $PYTHON $PROGRAMS/at_terminal.py WINCH 1; echo status $?")
        shell.until("ready")
        shell.terminal.size(90, 30)
        shell.until("got 1")
        shell.until("status")

    assert same(shells, do)[0] == "got 1 90 30"


def test_a_window_that_is_closed_ends_all(shells: Callable[[bool], Shell]) -> None:
    """SIGHUP of a terminal that is gone: nothing of the job, and nothing of ours, goes on."""

    def do(shell: Shell) -> None:
        shell.run("$RUN $PYTHON $PROGRAMS/sleeps.py 100")
        shell.until("ready")
        time.sleep(1)
        # xterm and sshd: the shell gets SIGHUP, and hands it to its jobs (bash(1)).
        shell.terminal.hang_up()
        end = time.monotonic() + 100
        while [*marked(shell.folder)]:
            assert time.monotonic() < end, [*marked(shell.folder)]
            time.sleep(0.1)

    same(shells, do)


def test_a_pause_of_the_whole_group_is_no_hang(beside: Beside) -> None:
    """Without a terminal: a scheduler that suspends, `kill -STOP -- -PGID`."""

    def pause(started: Started) -> None:
        started.until("ready")
        time.sleep(1 if started.is_watched else 0)
        os.killpg(started.pid, signal.SIGSTOP)
        time.sleep(9 if started.is_watched else 0.5)
        os.killpg(started.pid, signal.SIGCONT)

    watch = ("--on-hang", "end", "--stall", "3")
    script = "exec $RUN $PYTHON $PROGRAMS/at_terminal.py CONT 1"
    both = beside(script, watch=watch, meanwhile=pause).check()
    assert both.plain.out == "ready\ngot 1\n", both
    assert "HANG" not in both.watched.err, both
