"""Start real jobs, find their processes, wait for them with a deadline, count what they leave.

Shared by the benchmarks and by the tests that start whole jobs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

MARK = "HANGBISECT_TEST_JOB"  # in the environment of every process of a job of ours
CHECKOUT = (str(Path(__file__).resolve().parent.parent / "bisect"),)  # python FOLDER
INSTALLED = ("-m", "bisect")
# torchrun's folder of error files, where it fails; the compiler's cache.
_OF_TORCH = ("torchelastic_", "torchinductor_")


def heed_signals() -> None:
    """Let SIGINT and SIGHUP end what is started here, as from a terminal.

    Started in the background (nohup, a CI's runner) we may ignore these, and so would every job
    that is to be interrupted.
    """
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@dataclass
class Ended:
    """How a job ended. `left_processes` and `left_files` are what it should not have left."""

    status: int
    seconds: float
    out: str
    err: str
    verdict: dict[str, Any]
    run_dir: Path
    left_processes: list[str] = field(default_factory=list)
    left_files: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Nothing is left behind."""
        return not self.left_processes and not self.left_files


class Running:
    """A job under way, started with start()."""

    def __init__(self, command: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> None:
        """Start `command` in a session of its own."""
        self.mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self.run_dir = cwd / "run"
        self._places = [cwd / "x", cwd / "t"]  # for sockets and for temporary files
        for place in self._places:
            place.mkdir(mode=0o700, exist_ok=True)
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115 open as long as the job
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={
                **environ,
                MARK: self.mark,
                "XDG_RUNTIME_DIR": str(self._places[0]),
                "TMPDIR": str(self._places[1]),
            },
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )

    def marked(self) -> list[int]:
        """Return the pids of all living processes of the job, the monitor's too."""
        return find_marked(self.mark, self.process.pid)

    def said(self) -> str:
        """Return what it has printed so far, on both streams."""
        text = ""
        for fd in (self._out.fileno(), self._err.fileno()):
            text += os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")
        return text

    def pid_of(self, who: str) -> int | None:
        """Return the pid of "launcher", "monitor", "rank0" and so on; None if it is not there."""
        if who == "launcher":
            return self.process.pid if self.process.poll() is None else None
        for pid in self.marked():
            if who == "monitor" and " monitor " in _command(pid):
                return pid
            if who.startswith("rank") and _is_rank(pid, who[4:], self.process.pid):
                return pid
        return None

    def wait_for(self, who: str, limit: float = 60.0) -> int | None:
        """Return the pid as pid_of() does, once it is there; None after `limit` seconds."""
        return until(lambda: self.pid_of(who), limit, self.process)

    def wait_until_gone(self, limit: float = 60.0) -> float | None:
        """Return when no process of it was left (monotonic), None after `limit` seconds."""
        end = time.monotonic() + limit
        while self.process.poll() is None or self.marked():
            if time.monotonic() > end:
                return None
            time.sleep(0.01)
        return time.monotonic()

    def end(self, limit: float, rest: float = 15.0) -> Ended:
        """Wait for the end, at most `limit` seconds; then end it by force (status -9). What it
        started and is not gone `rest` seconds later is left behind.
        """
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            for pid in self.marked():
                _kill(pid)
            status = -signal.SIGKILL
            self.process.wait(10)
        seconds = time.monotonic() - self.began
        left = self._wait_for_the_rest(rest)
        for pid in left:
            _kill(pid)
        return Ended(
            status=status,
            seconds=seconds,
            out=_text(self._out),
            err=_text(self._err),
            verdict=verdict_of(self.run_dir),
            run_dir=self.run_dir,
            left_processes=list(left.values()),
            left_files=self._left_files(),
        )

    def _left_files(self) -> list[str]:
        """Return what is left in the folders for sockets and temporary files, but for what torch
        leaves there with us and without.
        """
        return [
            str(entry)
            for place in self._places
            for entry in place.iterdir()
            if not entry.name.startswith(_OF_TORCH)
        ]

    def _wait_for_the_rest(self, limit: float) -> dict[int, str]:
        """The launcher may be gone a moment before the monitor."""
        until = time.monotonic() + limit
        while True:
            left = {pid: _command(pid) for pid in self.marked()}
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.05)


def start(
    arguments: Sequence[str],
    cwd: Path,
    *,
    ranks: int = 2,
    way: Sequence[str] = CHECKOUT,
    launcher: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Running:
    """Start our pipeline under torchrun (`ranks` 0: no launcher) with its run folder in `cwd`."""
    scripts = Path(sys.executable).parent
    if launcher is None:
        launcher = [str(scripts / "torchrun"), "--standalone", f"--nproc_per_node={ranks}"]
        if ranks == 0:
            launcher = [sys.executable]
    command = [*launcher, *way, "--run-dir", str(cwd / "run"), *arguments]
    return Running(command, cwd, {**clean_environ(), **(environ or {})})


def clean_environ() -> dict[str, str]:
    """Return this environment without what a launcher or a run of ours left in it."""
    prefixes = ("RANK", "LOCAL_", "WORLD_", "MASTER_", "TORCHELASTIC", "HANGBISECT_", "WANDB_")
    clusters = ("SLURM_", "SBATCH_", "OMPI_", "PMI")
    kept = {n: v for n, v in os.environ.items() if not n.startswith((*prefixes, *clusters))}
    # The reports of a hang take a second of a core, and nobody reads them here.
    ours = {"HANGBISECT_REPORTS": "later"}
    return {**kept, **ours, "PYTHONUNBUFFERED": "1", "WANDB_SILENT": "true"}


def run(arguments: Sequence[str], *, limit: float = 180.0, **how: Any) -> Ended:
    """Run a job in a folder of its own, to its end; the folder is removed."""
    with folder() as here:
        return start(arguments, here, **how).end(limit)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Make a folder for a job, and remove it."""
    here = Path(tempfile.mkdtemp(prefix="job-"))  # a short name: sockets lie in it
    try:
        yield here
    finally:
        shutil.rmtree(here, ignore_errors=True)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Have so many other processes burn CPU meanwhile."""
    command = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def until(
    found: Callable[[], T], limit: float, process: subprocess.Popen[bytes] | None = None
) -> T | None:
    """Return what `found` returns as soon as that is true.

    None after `limit` seconds or once `process` has ended.
    """
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        if process is not None and process.poll() is not None:
            return None
        time.sleep(0.005)
    return None


def verdict_of(run_dir: Path) -> dict[str, Any]:
    """Return the verdict that stands in a run folder, {} if there is none."""
    try:
        verdict: dict[str, Any] = json.loads((run_dir / "verdict.json").read_text())
        return verdict
    except (OSError, ValueError):
        return {}


def wide(row: Sequence[object], widths: Sequence[int]) -> str:
    """Return a row of a table, each column at least as wide as `widths` says, numbers right."""
    cells = []
    for cell, width in zip(row, widths, strict=True):
        if isinstance(cell, float):
            cells.append(f"{cell:{width}.2f}")
        elif isinstance(cell, int):
            cells.append(f"{cell:{width}}")
        else:
            cells.append(f"{'-' if cell is None else cell!s:{width}}")
    return "  ".join(cells).rstrip()


def find_marked(mark: str, session: int | None = None, variable: str = MARK) -> list[int]:
    """Return the living processes with a mark, and those of a session that is the job's alone: one
    may have overwritten its variables (setproctitle).
    """
    wanted = f"{variable}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes().split(b"\0")
                if wanted in environ or (session is not None and _is_in(entry, session)):
                    found.append(int(entry.name))
            except (OSError, IndexError):
                continue
    return found


def _is_in(entry: Path, session: int) -> bool:
    """Return whether a living process is in a session."""
    state, _, _, its_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
    return int(its_session) == session and state not in "ZX"


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace")[:200]


def _is_rank(pid: int, rank: str, launcher: int) -> bool:
    """Return whether a process is a rank's own: a child of the launcher that has its number."""
    try:
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    alone = rank == "0" and not any(word.startswith(b"RANK=") for word in environ)
    return int(parent) == launcher and (alone or f"RANK={rank}".encode() in environ)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _text(file: Any) -> str:
    file.seek(0)
    text: str = file.read()
    file.close()
    return text
