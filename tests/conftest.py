"""What all tests share: the package by its name, and an end for whatever they start."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import runpy
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jobs
import pytest
from hypothesis import HealthCheck, settings

CHECKOUT = Path(__file__).resolve().parents[1]
DEADLINE = 120.0  # seconds for a process to end, on a busy machine

Start = Callable[..., subprocess.Popen[str]]
T = TypeVar("T")

WHOLE_JOBS = f"{Path(__file__).resolve().parent / 'real'}{os.sep}"


if importlib.util.find_spec("hangbisect") is None:
    # No wheel is installed: it puts the checkout into sys.modules as `hangbisect`.
    runpy.run_path(str(CHECKOUT / "bisect" / "__main__.py"), run_name="checkout")

jobs.heed_signals()

# All that is read and collected stays. To search it for garbage is a third of what collecting
# takes, in each worker: from pytest_collection_finish() on, only newer objects are searched.
gc.disable()

# They take a second of a core for each job that hangs: real/test_reports.py has them made.
os.environ["HANGBISECT_REPORTS"] = "later"

# How long an example takes tells how busy the machine is, and nothing else.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# For the daily round: pytest --hypothesis-profile=quick.
settings.register_profile("quick", settings.get_profile("ours"), max_examples=20)
settings.load_profile("ours")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook as well
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Side by side (pytest-xdist), tests that share a Slurm, or what was made for all of their
    module, are run by one worker: it is made once. Tests of whole jobs mostly wait, and the others
    compute: mixed, they leave no processor idle.
    """
    for item in items:
        if isinstance(item, pytest.Function) and (group := _shared(item)):
            item.add_marker(pytest.mark.xdist_group(group))
    if "PYTEST_XDIST_WORKER" in os.environ:
        whole = [item for item in items if is_of_whole_jobs(item)]
        others = [item for item in items if not is_of_whole_jobs(item)]
        items[:] = mix_evenly(whole, others)
        # What one worker does alone begins first, for nobody can help it at the end.
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail where pytest-xdist does not see the groups: everything shared would be made by each
    worker, and nothing else would tell.
    """
    gc.freeze()
    gc.enable()
    marked = any(item.get_closest_marker("xdist_group") for item in session.items)
    grouped = any("@" in item.nodeid for item in session.items)
    if session.config.getoption("loadgroup", False) and marked and not grouped:
        raise pytest.UsageError("this pytest-xdist finds no groups in this pytest: constraints.txt")


def is_of_whole_jobs(item: pytest.Item) -> bool:
    """Return whether a test starts whole jobs."""
    return str(item.path).startswith(WHOLE_JOBS)


def mix_evenly(*lists: Sequence[T]) -> list[T]:
    """Return the items of all `lists`, each list in its order and spread over the whole."""
    placed = [((n + 0.5) / len(one), item) for one in lists for n, item in enumerate(one)]
    return [item for _, item in sorted(placed, key=lambda pair: pair[0])]


def _shared(item: pytest.Function) -> str:
    """Return what a test shares with others, "" for nothing, or where it is marked already: two
    marks of one test make another group of it.
    """
    if item.get_closest_marker("xdist_group") is not None:
        return ""
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if "slurm" in item.fixturenames or any(one in ("srun", "sbatch") for one in params):
        return "slurm"
    definitions = item._fixtureinfo.name2fixturedefs.values()
    return item.module.__name__ if any(each[-1].scope == "module" for each in definitions) else ""


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the repository."""
    return CHECKOUT


@pytest.fixture(scope="session")
def package() -> Path:
    """The folder of the package under test; `python FOLDER` starts it, installed or not."""
    return Path(importlib.import_module("hangbisect").__path__[0])


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process as subprocess.Popen does (text, pipes); its whole family ends with the test.

    The family is every process with this test's mark in its environment: it finds those too that
    left their parent and session.
    """
    mark = f"HANGBISECT_TEST={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")
    started: list[subprocess.Popen[str]] = []

    def popen(*command: object, **options: Any) -> subprocess.Popen[str]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        options["env"] = dict(options.get("env") or os.environ) | {name: value}
        started.append(subprocess.Popen([str(word) for word in command], **options))
        return started[-1]

    yield popen
    _end_family(mark.encode(), started)


def _end_family(mark: bytes, started: list[subprocess.Popen[str]]) -> None:
    end = time.monotonic() + DEADLINE
    while (pids := [*_marked(mark)]) and time.monotonic() < end:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in started:
            process.poll()
        time.sleep(0.05)
    for process in started:
        process.communicate(timeout=DEADLINE)


def _marked(mark: bytes) -> Iterator[int]:
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError):
            environ = Path(f"/proc/{pid}/environ").read_bytes()  # a zombie's is empty
            if mark in environ.split(b"\0"):
                yield pid
