"""Hosts for the tests of several nodes: namespaces of their own (benchmarks/hosts.py)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hosts
import pytest
from hosts import Host, Hosts

DEADLINE = 150.0  # seconds for a command on a host, on a busy machine
SCRIPTS = Path(sys.executable).parent


class HostsHere:
    """Makes hosts that end with the test."""

    def __init__(self) -> None:
        self._made: list[Hosts] = []
        self._started: list[Started] = []

    def make(self, count: int = 2, shared: bool = True, clocks: Sequence[float] = ()) -> Hosts:
        """Make hosts; the test is skipped where there can be none."""
        if why_not := hosts.missing():
            pytest.skip(why_not)
        self._made.append(Hosts(count, shared, clocks))
        return self._made[-1]

    def start(
        self, host: Host, *command: object, env: Mapping[str, str] | None = None, **how: Any
    ) -> Started:
        """Start a command on a host; what it prints on both streams is one text."""
        log = Path(host._made.root / f"said-{len(self._started)}")
        with log.open("w") as file:
            streams: dict[str, Any] = {"stdout": file, "stderr": file}
            process = host.start(command, env, **{**streams, **how})
        self._started.append(Started(host, process, log))
        return self._started[-1]

    def start_each(self, made: Sequence[Host], words: Any, **how: Any) -> list[Started]:
        """Start `words(K)` on the K-th of these hosts, all at once."""
        return [self.start(host, *words(number), **how) for number, host in enumerate(made)]

    def end(self) -> None:
        """End them and all that runs in them."""
        for one in self._started:
            one.kill()
        for made in self._made:
            made.end()


@dataclass(frozen=True)
class Started:
    """A command under way on a host."""

    host: Host
    process: subprocess.Popen[str]
    log: Path

    def said(self) -> str:
        """Return what it has printed so far."""
        return self.log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal to the command and its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """End it by force."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait(DEADLINE)

    def end(self, limit: float = DEADLINE) -> int:
        """Return its status; it is ended by force (status -9) once `limit` seconds are over."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.wait()


def torchrun(number: int, nodes: int, ranks: int, *more: str) -> list[str]:
    """Return the words that start an agent on the host of that number, with a fixed address."""
    return [
        *(str(SCRIPTS / "torchrun"), f"--nnodes={nodes}", f"--node-rank={number}"),
        *(f"--nproc-per-node={ranks}", "--master-addr=n1", "--master-port=29400", *more),
    ]


def torchrun_c10d(nodes: int, ranks: int, *more: str) -> list[str]:
    """Return the words that start an agent of any host: the agents give each other numbers."""
    return [
        *(str(SCRIPTS / "torchrun"), f"--nnodes={nodes}", f"--nproc-per-node={ranks}"),
        *("--rdzv-backend=c10d", "--rdzv-id=here", "--rdzv-endpoint=n1:29401", *more),
    ]


def verdicts(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return all verdicts in a run folder, by the folder they lie in: "", "node-1"."""
    found = {}
    for path in sorted(run_dir.glob("**/verdict.json")):
        below = str(path.parent.relative_to(run_dir))
        found["" if below == "." else below] = json.loads(path.read_text())
    return found
