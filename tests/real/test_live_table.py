"""The table of ranks below the lines, on a real terminal: pty, drawer and jobs are real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import jobs
import psutil
import pytest
from hangbisect.report.live_table import LiveRow, RankTable

from .terminal_here import Terminal

# Does what it is told on descriptor 3, line by line: it stands for a job that prints what it likes.
JOB = """
import os, sys
for line in os.fdopen(int(sys.argv[1])):
    exec(line)
    sys.stdout.flush()
"""


class Scene:
    """A job on a terminal, and the drawer of its table."""

    def __init__(self, package: Path, columns: int = 80, lines: int = 24) -> None:
        self.terminal = Terminal(columns, lines)
        reader, self._orders = os.pipe()
        command = [sys.executable, "-c", JOB, str(reader)]
        self.job = self.terminal.start(command, os.environ, keep=[reader])
        os.close(reader)
        told = json.dumps({"path": sys.path, "ranks": [self.job], "launcher": 0})
        self.drawer = subprocess.Popen(
            [sys.executable, "-I", "-S", str(package), "live_table", told],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.terminal.other,
            start_new_session=True,
        )

    def do(self, program: str) -> None:
        """Have the job do a line of Python."""
        os.write(self._orders, f"{program}\n".encode())

    def show(self, *places: str, left: float = 50.0) -> None:
        """Tell the drawer where ranks are: rank 0 in the first of `places`, and so on."""
        now = time.monotonic()
        rows = tuple(
            LiveRow(str(rank), "works", place, now - 3, now + left, None, "")
            for rank, place in enumerate(places)
        )
        assert self.drawer.stdin is not None
        self.drawer.stdin.write(
            RankTable(rows, len(rows), now - 9, 20.0).as_json().encode() + b"\n"
        )
        self.drawer.stdin.flush()

    def close_table(self) -> None:
        """Say that it is over."""
        assert self.drawer.stdin is not None
        self.drawer.stdin.close()

    def end(self) -> None:
        """End everything."""
        self.drawer.kill()
        self.drawer.wait()
        self.close_table()
        os.close(self._orders)
        self.terminal.close()


@pytest.fixture
def scene(package: Path) -> Iterator[Scene]:
    made = Scene(package)
    yield made
    made.end()


def table(lines: list[str]) -> list[str]:
    """Return the rows of the table, from its title on."""
    titles = [i for i, line in enumerate(lines) if line.startswith("-- hangbisect")]
    return lines[titles[0] :] if titles else []


def has_table(lines: list[str]) -> bool:
    return bool(table(lines))


def has_none(lines: list[str]) -> bool:
    return not table(lines)


def test_lines_scroll_above_the_table_and_are_all_that_remains(scene: Scene) -> None:
    terminal = scene.terminal
    scene.do("print('before')")
    scene.show("9 WandbLogger ready", "3 Logs directory ready")
    lines = terminal.until(has_table)
    assert [row.split()[0] for row in table(lines)[2:4]] == ["0", "1"]
    assert table(lines)[2].endswith("s left")
    scene.do("[print('line', n) for n in range(200)]")
    lines = terminal.until(lambda lines: "line 199" in lines)
    assert len(table(lines)) == 4
    scene.show("9 WandbLogger ready", "3 Logs directory ready", "4 Tokenizer loaded")  # it grows
    terminal.until(lambda lines: len(table(lines)) == 5)
    scene.do("[print('more', n) for n in range(200)]")
    terminal.until(lambda lines: "more 199" in lines and has_table(lines))
    scene.close_table()
    terminal.until(has_none)
    expected = ["before", *(f"line {n}" for n in range(200)), *(f"more {n}" for n in range(200))]
    assert terminal.everything() == expected
    assert scene.drawer.wait(60) == 0
    scene.do("print('after')")
    terminal.until(lambda lines: "after" in lines)
    assert terminal.everything() == [*expected, "after"]


def test_progress_bars_of_the_job_stay_as_they_are(scene: Scene) -> None:
    terminal = scene.terminal
    scene.show("9 WandbLogger ready")
    terminal.until(has_table)
    scene.do("print('lines\\n' * 30)")
    scene.do(
        "import tqdm; bars = [tqdm.tqdm(total=300, position=n, desc=f'bar {n}', mininterval=0)"
        " for n in range(2)]; [(bars[n % 2].update(), print(end='')) for n in range(600)]"
    )
    lines = terminal.until(lambda lines: sum("300/300" in line for line in lines) == 2)
    assert sum("bar " in line for line in lines) == 2
    assert has_table(lines)
    assert not any("bar " in line or "hangbisect" in line for line in terminal.scrolled())
    scene.do("[bar.close() for bar in bars]; print('typed:', input('key? '))")
    terminal.until(lambda lines: any(line.startswith("key?") for line in lines))
    terminal.type("abc\n")
    terminal.until(lambda lines: "typed: abc" in lines and "key? abc" in lines)
    scene.close_table()
    lines = terminal.until(has_none)
    assert sum("bar " in line for line in lines) == 2


def test_it_withdraws_while_the_terminal_is_somebody_elses(scene: Scene) -> None:
    terminal = scene.terminal
    scene.show("9 WandbLogger ready")
    terminal.until(has_table)
    # A debugger's prompt, an editor: it reads single keys.
    scene.do("import termios; was = termios.tcgetattr(0)")
    scene.do(
        "raw = list(was); raw[3] &= ~termios.ICANON; termios.tcsetattr(0, termios.TCSANOW, raw)"
    )
    terminal.until(has_none)
    assert terminal.screen.margins in (None, (0, 23))
    scene.do("termios.tcsetattr(0, termios.TCSANOW, was)")
    terminal.until(has_table)
    # Ctrl-Z: a shell takes the terminal.
    os.kill(scene.job, signal.SIGSTOP)
    terminal.until(has_none)
    os.kill(scene.job, signal.SIGCONT)
    terminal.until(has_table)
    scene.show()  # nothing is watched any more
    terminal.until(has_none)


def test_another_size_of_the_terminal_is_another_place_of_the_table(scene: Scene) -> None:
    terminal = scene.terminal
    scene.do("[print('line', n) for n in range(50)]")
    scene.show("9 WandbLogger ready", "4 Tokenizer loaded")
    terminal.until(has_table)
    for columns, height in ((120, 40), (50, 12), (100, 30)):
        terminal.size(columns, height)
        shown = terminal.until(lambda lines, h=height: table(lines) == lines[h - 4 :])  # type: ignore[misc]
        assert sum(line.startswith("-- hangbisect") for line in shown) == 1
    terminal.size(30, 6)  # no place for it
    terminal.until(has_none)
    assert not any("hangbisect" in line for line in terminal.scrolled())


def test_a_stopped_terminal_holds_nobody_and_is_clean_when_it_goes_on(scene: Scene) -> None:
    terminal = scene.terminal
    scene.show("9 WandbLogger ready")
    terminal.until(has_table)
    termios.tcflow(terminal.other, termios.TCOOFF)  # Ctrl-S
    before = len(terminal.raw)
    for n in range(3):
        scene.show(f"{n} somewhere")
        terminal.look(0.25)
    assert len(terminal.raw) == before
    scene.close_table()
    terminal.look(0.5)
    assert scene.drawer.poll() is None  # it waits, and nobody for it
    termios.tcflow(terminal.other, termios.TCOON)
    terminal.until(has_none)
    assert scene.drawer.wait(60) == 0


def test_two_jobs_on_one_terminal_have_one_table(scene: Scene, package: Path) -> None:
    scene.show("9 WandbLogger ready")
    scene.terminal.until(has_table)
    told = json.dumps({"path": sys.path, "ranks": [scene.job], "launcher": 0})
    second = subprocess.Popen(
        [sys.executable, "-I", "-S", str(package), "live_table", told],
        stdin=subprocess.PIPE,
        stderr=scene.terminal.other,
    )
    now = time.monotonic()
    row = LiveRow("7", "works", "second job", now, None, None, "")
    second.communicate(RankTable((row,), 1, now, 20.0).as_json().encode() + b"\n", timeout=60)
    assert not any("second job" in line for line in scene.terminal.look(0.3))


@pytest.fixture
def started(tmp_path: Path, package: Path) -> Iterator[Terminal]:
    """A pipeline of ours on a terminal, of one rank that hangs at its third checkpoint."""
    terminal = Terminal(100, 30)
    inject = ["--inject", "sleep@logs_directory", "--until", "logs_directory"]
    folder = ["--run-dir", str(tmp_path / "run"), "--logs-path", str(tmp_path / "logs")]
    environ = {**jobs.clean_environ(), "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "CI"):
        environ.pop(name, None)
    terminal.start([sys.executable, str(package), *inject, *folder], environ)
    terminal.until(lambda lines: any(row.startswith("0  ") for row in table(lines)))
    terminal.until(lambda lines: any("3 Logs directory ready" in row for row in table(lines)))
    yield terminal
    terminal.close()


def test_after_ctrl_c_only_the_lines_and_the_verdict_remain(started: Terminal) -> None:
    started.type("\x03")
    assert started.wait() == 130
    lines = started.everything()
    assert not any("-- hangbisect" in line for line in lines)
    assert started.screen.margins in (None, (0, 29))
    verdict = next(i for i, line in enumerate(lines) if "INTERRUPTED" in line)
    assert any("Injecting sleep" in line for line in lines[:verdict])
    assert lines[-1].startswith("report")


def test_a_drawer_that_is_killed_leaves_a_clean_terminal(started: Terminal) -> None:
    drawers = [
        process
        for process in psutil.process_iter(["cmdline"])
        if "live_table" in (process.info["cmdline"] or []) and _is_on(process, started)
    ]
    assert len(drawers) == 1
    drawers[0].kill()
    lines = started.until(has_none)
    assert any("Injecting sleep" in line for line in lines)
    assert started.screen.margins in (None, (0, 29))
    started.type("\x03")
    assert started.wait() == 130
    assert any("INTERRUPTED" in line for line in started.everything())


def _is_on(process: psutil.Process, terminal: Terminal) -> bool:
    name = os.ttyname(terminal.other)
    folder = f"/proc/{process.pid}/fd"
    return any(os.readlink(f"{folder}/{fd}") == name for fd in os.listdir(folder))


def test_a_terminal_that_is_slow_to_read_gets_no_half_of_a_table(scene: Scene) -> None:
    terminal = scene.terminal
    scene.show("9 WandbLogger ready")
    terminal.until(has_table)
    scene.do("[print(f'{n:070}') for n in range(1000)]")  # more than a pty holds: 64 KiB
    for n in range(
        6
    ):  # nobody reads: the job waits in the middle of its lines, the drawer does not
        scene.show(f"{n} somewhere")
        time.sleep(0.2)
    terminal.until(lambda lines: f"{999:070}" in lines and has_table(lines))
    scene.close_table()
    terminal.until(has_none)
    assert terminal.everything() == [f"{n:070}" for n in range(1000)]
