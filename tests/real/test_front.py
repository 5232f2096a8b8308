"""The process in front of a command: what the command, its shell and its terminal see of us.

Each program runs plain and under `hangbisect run`: same status, same output.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jobs
import psutil
import pytest

RUN = (sys.executable, "-m", "bisect", "run")
DEADLINE = 100.0  # seconds, on a busy machine
# Says so when it is ready, and each signal that it gets; ends a moment after the last of argv[1].
HEEDS = """
import signal, sys, time
left = int(sys.argv[1])
def got(number, frame):
    global left
    left -= 1
    print("got", number, flush=True)
for number in map(int, sys.argv[2:]):
    signal.signal(number, got)
print("rea" "dy", flush=True)  # an echo of what was typed has it in two
until = time.monotonic() + 90
while left > 0 and time.monotonic() < until:
    time.sleep(0.05)
time.sleep(0.5)  # one that came twice
"""


@dataclass
class Told:
    """How a program ended, and what it wrote on stdout."""

    status: int
    out: str


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment whose processes end with the test, and leave nothing."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    yield {**jobs.clean_environ(), jobs.MARK: mark, "HANGBISECT_RUN_DIR": str(tmp_path / "run")}
    end = time.monotonic() + DEADLINE
    while (left := jobs.find_marked(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def both(run: Callable[[tuple[str, ...]], Told]) -> Told:
    """Return what a program tells under `hangbisect run`, which is the same as plain."""
    plain, watched = run(()), run((*RUN, "--"))
    assert watched == plain
    return watched


def wait_for(path: Path, text: str) -> None:
    end = time.monotonic() + DEADLINE
    while text not in path.read_text() and time.monotonic() < end:
        time.sleep(0.02)
    assert text in path.read_text()


CATCHABLE = sorted(
    {signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM}
    | {signal.SIGWINCH, signal.SIGALRM, signal.SIGURG, signal.SIGCONT, signal.SIGRTMIN + 3}
)


# A command that is a rank, and one's whole group: no_harm/test_signals.py.
@pytest.mark.parametrize("to", ["pid", "each"])
def test_every_signal_comes_once_however_it_was_sent(
    to: str, tmp_path: Path, marked: dict[str, str]
) -> None:
    numbers = [int(number) for number in CATCHABLE]

    def run(before: tuple[str, ...]) -> Told:
        out = tmp_path / f"out-{len(before)}"
        command = [*before, sys.executable, "-c", HEEDS, str(len(numbers)), *map(str, numbers)]
        with out.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, env=marked, start_new_session=True)
        wait_for(out, "ready")
        time.sleep(1.0)  # the stand-in is there
        for number in numbers:
            if to == "pid":
                process.send_signal(number)
            else:  # as Slurm signals a step: every process of it
                for pid in jobs.find_marked(marked[jobs.MARK]):
                    os.kill(pid, number)
            wait_for(out, f"got {number}\n")
        return Told(process.wait(DEADLINE), out.read_text())

    told = both(run)
    assert told == Told(0, "ready\n" + "".join(f"got {number}\n" for number in numbers))


def test_a_program_that_reloads_on_every_hangup_is_let(
    tmp_path: Path, marked: dict[str, str]
) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        command = [*RUN, "--", sys.executable, "-c", HEEDS, "4", "1"]
        process = subprocess.Popen(command, stdout=file, env=marked)
    wait_for(out, "ready")
    for count in range(1, 5):
        process.send_signal(signal.SIGHUP)
        wait_for(out, "got 1\n" * count)
    assert process.wait(DEADLINE) == 0


@pytest.mark.parametrize("script", ["exit 0", "exit 7", "kill -TERM $$", "kill -SEGV $$"])
def test_the_status_is_the_commands_own_by_a_signal_too(
    script: str, marked: dict[str, str]
) -> None:
    def run(before: tuple[str, ...]) -> Told:
        ended = subprocess.run(
            [*before, "sh", "-c", f"ulimit -c 0; {script}"],
            env=marked,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        return Told(ended.returncode, ended.stdout)

    both(run)


def test_a_reader_sees_the_end_of_what_the_command_closes(
    tmp_path: Path, marked: dict[str, str]
) -> None:
    script = "import os, time; os.write(1, b'all\\n'); os.close(1); time.sleep(1000)"
    process = subprocess.Popen(
        [*RUN, "--", sys.executable, "-c", script], env=marked, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        assert stdout.read() == b"all\n"  # to its end: nobody else has it open
    assert process.poll() is None
    process.terminate()
    assert process.wait(DEADLINE) == -signal.SIGTERM


def test_signals_ignored_and_blocked_before_us_are_so_in_the_command(
    marked: dict[str, str],
) -> None:
    lines = "grep -E '^(SigBlk|SigIgn|SigCgt)' /proc/self/status"

    def run(before: tuple[str, ...]) -> Told:
        script = f"trap '' USR1 CHLD PIPE; {' '.join(before)} {lines}; :"
        ended = subprocess.run(
            ["bash", "-c", script], env=marked, capture_output=True, text=True, timeout=DEADLINE
        )
        return Told(ended.returncode, ended.stdout)

    both(run)


def test_a_killed_front_takes_the_command_along_as_if_it_had_been_killed(
    marked: dict[str, str],
) -> None:
    process = subprocess.Popen([*RUN, "--", "sleep", "1000"], env=marked)
    command = child_of(process.pid)
    process.kill()
    process.wait(DEADLINE)
    command.wait(DEADLINE)


@pytest.mark.parametrize(("when", "how"), [("soon", signal.SIGKILL), ("late", signal.SIGSTOP)])
def test_a_watcher_that_is_gone_changes_nothing(
    when: str, how: signal.Signals, marked: dict[str, str]
) -> None:
    script = "import time; time.sleep(4); raise SystemExit(7)"
    process = subprocess.Popen(
        [*RUN, "--on-hang", "end", "--", sys.executable, "-c", script],
        env=marked,
        stderr=subprocess.PIPE,
        text=True,
    )
    child_of(process.pid)
    time.sleep(0.2 if when == "soon" else 2.5)
    for pid in watchers(marked[jobs.MARK], process.pid):
        os.kill(pid, how)
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 7
    assert "The watch from outside is gone" in err


def test_a_front_whose_helpers_are_stopped_while_they_start_goes_on() -> None:
    # Who starts them is a process of its own, for a moment, and stops itself here.
    program = (
        "import os, signal\n"
        "from hangbisect.front import supervise\n"
        "supervise.START_LIMIT = 0.5\n"
        "def tasks():\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    yield\n"
        "print(supervise._start_orphans(tasks()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=DEADLINE)
    assert (done.returncode, done.stdout) == (0, b"[]\n")


def child_of(front: int) -> psutil.Process:
    """Return the command of a front, its only child."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found = psutil.Process(front).children()
        if len(found) == 1 and "run" not in found[0].cmdline():
            return found[0]
        time.sleep(0.02)
    raise AssertionError("the command was not started")


def watchers(mark: str, front: int) -> list[int]:
    """Return the watcher: a process of ours that leads a session of its own."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        ours = [
            pid
            for pid in jobs.find_marked(mark)
            if pid != front
            and os.getsid(pid) not in (os.getsid(0), os.getsid(front))
            and "run" in " ".join(psutil.Process(pid).cmdline())
        ]
        if ours:
            return ours
        time.sleep(0.02)
    raise AssertionError("no watcher was started")


# ---- a terminal ----------------------------------------------------------------------------------


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**environ, "PS1": "$ "})
        os.set_blocking(self.terminal, False)
        self.said = ""

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def until(self, text: str) -> None:
        """Read until `text` is there; forget what came before it."""
        end = time.monotonic() + DEADLINE
        while text not in self.said:
            assert time.monotonic() < end, self.said
            try:
                self.said += os.read(self.terminal, 4096).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.02)
        self.said = self.said.partition(text)[2]

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture
def shell(marked: dict[str, str]) -> Iterator[Shell]:
    found = Shell(marked)
    yield found
    found.close()


def test_ctrl_z_stops_the_job_and_fg_brings_it_back(shell: Shell) -> None:
    shell.type(f'{" ".join(RUN)} --stall 2 --on-hang end -- python3 -c "{_COUNTS}"\n')
    shell.until("count 2")
    shell.type("\x1a")
    shell.until("Stopped")
    time.sleep(6)  # longer than --stall
    shell.type("fg\n")
    shell.until("count 9")
    shell.until("done")
    shell.type("echo status $?\n")
    shell.until("status 0")


_COUNTS = (
    "import time\nfor n in range(12): print('count', n, flush=True); time.sleep(0.5)\n"
    "print('do' + 'ne')"
)


def test_a_command_that_is_stopped_and_let_go_alone_takes_us_along(
    shell: Shell, marked: dict[str, str]
) -> None:
    shell.type(f'{" ".join(RUN)} -- python3 -c "{_COUNTS}"\n')
    shell.until("count 2")
    (counting,) = [
        one
        for pid in jobs.find_marked(marked[jobs.MARK])
        if (words := (one := psutil.Process(pid)).cmdline())[-1:]
        and "count" in words[-1]
        and "run" not in words
    ]
    counting.suspend()
    shell.until("Stopped")
    counting.resume()
    shell.type("wait\n")
    shell.until("done")


def test_ctrl_c_is_the_commands_own(shell: Shell) -> None:
    shell.type(f'{" ".join(RUN)} -- python3 -c "{_CATCHES}"\n')
    shell.until("waits")
    shell.type("\x03")
    shell.until("caught once")
    shell.until("done")
    shell.type("echo status $?\n")
    shell.until("status 4")


_CATCHES = (
    "import time\nprint('wai' + 'ts', flush=True)\ntry: time.sleep(50)\n"
    "except KeyboardInterrupt: print('caught' + ' once', flush=True)\n"
    "time.sleep(3); print('do' + 'ne'); raise SystemExit(4)"
)


def test_a_second_ctrl_c_within_two_seconds_ends_everything(shell: Shell) -> None:
    ignores = (
        "import signal, time; signal.signal(2, signal.SIG_IGN); "
        "print('wai' + 'ts', flush=True); time.sleep(1000)"
    )
    shell.type(f'{" ".join(RUN)} -- python3 -c "{ignores}"\n')
    shell.until("waits")
    shell.type("\x03")
    time.sleep(0.5)
    shell.type("\x03")
    shell.type("echo over\n")
    shell.until("over")


def test_a_new_size_of_the_terminal_is_told_once(shell: Shell) -> None:
    import fcntl
    import struct
    import termios

    heeds = HEEDS.replace("\n", "\\n").replace('"', "'")
    program = f"exec('''{heeds}'''.replace(chr(92)+'n', chr(10)))"
    shell.type(f'{" ".join(RUN)} -- python3 -c "{program}" 1 28\n')
    shell.until("ready")
    time.sleep(1.0)
    fcntl.ioctl(shell.terminal, termios.TIOCSWINSZ, struct.pack("4H", 40, 100, 0, 0))
    shell.until("got 28")
    shell.type("echo that was all\n")
    shell.until("that was all")
    assert "got 28" not in shell.said
