"""Start real jobs, wait for them with a deadline, and count what they leave behind.

Shared by the benchmarks and by the tests that start whole jobs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "HANGBISECT_TEST_JOB"  # in the environment of every process of a job of ours
CHECKOUT = (str(Path(__file__).resolve().parent.parent / "bisect"),)  # python FOLDER
INSTALLED = ("-m", "bisect")


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
        return _marked(self.mark)

    def end(self, limit: float) -> Ended:
        """Wait for the end, at most `limit` seconds; then end it by force (status -9)."""
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            for pid in self.marked():
                _kill(pid)
            status = -signal.SIGKILL
            self.process.wait(10)
        seconds = time.monotonic() - self.began
        left = self._wait_for_the_rest()
        for pid in left:
            _kill(pid)
        return Ended(
            status=status,
            seconds=seconds,
            out=_text(self._out),
            err=_text(self._err),
            verdict=_verdict(self.run_dir),
            run_dir=self.run_dir,
            left_processes=list(left.values()),
            left_files=self._left_files(),
        )

    def _left_files(self) -> list[str]:
        """Return what is left in the folders for sockets and temporary files. torchrun leaves its
        error files' folder behind when it fails, with us and without."""
        return [
            str(entry)
            for place in self._places
            for entry in place.iterdir()
            if not entry.name.startswith("torchelastic_")
        ]

    def _wait_for_the_rest(self, limit: float = 5.0) -> dict[int, str]:
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
    kept = {n: v for n, v in os.environ.items() if not n.startswith(prefixes)}
    return {**kept, "PYTHONUNBUFFERED": "1", "WANDB_SILENT": "true"}


def run(arguments: Sequence[str], *, limit: float = 180.0, **how: Any) -> Ended:
    """Run a job in a folder of its own, to its end; the folder is removed."""
    folder = Path(tempfile.mkdtemp(prefix="job-"))
    try:
        return start(arguments, folder, **how).end(limit)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _marked(mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace")[:200]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _text(file: Any) -> str:
    file.seek(0)
    text: str = file.read()
    file.close()
    return text


def _verdict(run_dir: Path) -> dict[str, Any]:
    try:
        verdict: dict[str, Any] = json.loads((run_dir / "verdict.json").read_text())
        return verdict
    except (OSError, ValueError):
        return {}
