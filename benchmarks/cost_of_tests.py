"""Which tests cost how many seconds of a processor: `pytest -p cost_of_tests --costs=FOLDER tests`.

`python benchmarks/cost_of_tests.py FOLDER [COUNT]` prints what was written there: all tests, then
files, then single tests, the dearest first.

How long a test takes tells how busy the machine is; what it costs is the same beside other work,
nearly. Each process of pytest (with pytest-xdist each worker) counts what it and all that it has
started have used, by a control group of its own where that can be made (cpuacct or cgroup v2), and
with the processes that it has waited for otherwise: what a test has left behind, or what init has
taken over, is then left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

# Where a control group that counts processors' time is made, and the file that says it.
GROUPS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup"))


def make_group() -> Path | None:
    """Make a control group with this process in it, and return it; None where that is refused."""
    for parent in GROUPS:
        if not (parent / "cgroup.procs").exists():
            continue
        group = parent / f"cost_of_tests_{os.getpid()}"
        try:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            continue
        return group
    return None


def read_seconds(group: Path | None) -> float:
    """Return how much of a processor all that is in a group has used; without one, this process
    and those that it waited for.
    """
    if group is not None and (group / "cpuacct.usage").exists():
        return int((group / "cpuacct.usage").read_text()) / 1e9
    if group is not None:
        lines = (group / "cpu.stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("usage_usec")) / 1e6
    own = resource.getrusage(resource.RUSAGE_SELF)
    theirs = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + theirs.ru_utime + theirs.ru_stime


class Costs:
    """Writes a line for each test: its name, seconds of a processor, seconds of a clock."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._group = make_group()
        self._file = (folder / f"{os.getpid()}.jsonl").open("w")
        self._begun = time.monotonic()

    def pytest_unconfigure(self) -> None:
        self._file.close()
        if self._group is not None:
            with contextlib.suppress(OSError):  # what a test has left behind is in it still
                (self._group.parent / "cgroup.procs").write_text(str(os.getpid()))
                self._group.rmdir()

    def _write(self, name: str, used: float, took: float) -> None:
        self._file.write(json.dumps([name, round(used, 4), round(took, 4)]) + "\n")
        self._file.flush()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        used = time.process_time()
        self._write("(start and collection)", used, time.monotonic() - self._begun)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        used, since = read_seconds(self._group), time.monotonic()
        try:
            return (yield)
        finally:
            self._write(item.nodeid, read_seconds(self._group) - used, time.monotonic() - since)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=Path, help="folder for what each test costs")


def pytest_configure(config: pytest.Config) -> None:
    if folder := config.getoption("--costs"):
        config.pluginmanager.register(Costs(folder), "cost_of_tests_writer")


def read_costs(folder: Path) -> dict[str, tuple[float, float]]:
    """Return seconds of a processor and of a clock by test, repeats and workers added up."""
    found: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for file in folder.glob("*.jsonl"):
        for name, used, took in map(json.loads, file.read_text().splitlines()):
            before = found[name]
            found[name] = (before[0] + used, before[1] + took)
    return dict(found)


def print_costs(folder: Path, count: int) -> None:
    """Print the sum, and the dearest files and tests."""
    costs = read_costs(folder)
    files: dict[str, tuple[float, float, int]] = defaultdict(lambda: (0.0, 0.0, 0))
    for name, (used, took) in costs.items():
        file = name.partition("::")[0]
        files[file] = (files[file][0] + used, files[file][1] + took, files[file][2] + 1)
    used, took = (sum(one[n] for one in costs.values()) for n in (0, 1))
    print(f"{used:8.1f} s of a processor, {took:8.1f} s of a clock: all")
    by_cost = sorted(files.items(), key=lambda pair: -pair[1][0])
    for file, (used, took, tests) in by_cost[:count]:
        print(f"{used:8.1f} {took:8.1f}  {tests:4d}  {file}")
    print()
    for name, (used, took) in sorted(costs.items(), key=lambda pair: -pair[1][0])[:count]:
        print(f"{used:8.1f} {took:8.1f}  {name}")


if __name__ == "__main__":
    print_costs(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50)
