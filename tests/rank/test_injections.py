"""Each kind does the real thing to a real process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hangbisect.base.checkpoints import Checkpoint, Phase
from hangbisect.base.errors import UsageError
from hangbisect.rank.injections import KINDS, Injection, parse_injection
from hypothesis import given
from hypothesis import strategies as st

DEADLINE = 60.0
PHASES = (Phase("first_batch", "data", 9.0),)
TABLE = (
    Checkpoint("launcher", "Ranks started", "launcher", 60.0),
    Checkpoint("wandb_logger", "WandbLogger ready", "wandb", 60.0, True, number=9),
    Checkpoint(
        "training", "Done", "fit", 60.0, phases=(Phase("first_batch", "data", 9.0),), number=12
    ),
)
RANK = """
import runpy, sys, time
from types import SimpleNamespace
runpy.run_path(sys.argv[1] + "/__main__.py")  # its package is in sys.modules from here on
from hangbisect.rank.injections import parse_injection
began = time.monotonic()
injection = parse_injection(sys.argv[2])
injection.run(SimpleNamespace(deadline=float(sys.argv[3]), args=SimpleNamespace(stall=1)))
print(time.monotonic() - began)
"""
# kind: the innermost Python frame
BLOCKING = {
    "sleep": "_sleep",
    "gil": "_gil",
    "native": "_native",
    "spin": "_spin",
    "socket": "_socket",
    "flock": "_flock",
    "fifo": "_fifo",
    "child": "_try_wait",
}
WITH_HELPERS = ("socket", "flock", "child", "trickle")

Inject = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def inject(start: Inject, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inject:
    """Start a process that is injected with a kind; `deadline` is its step's, in seconds."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def injected(kind: str, deadline: float = 60.0) -> subprocess.Popen[str]:
        return start(sys.executable, "-c", RANK, package, f"{kind}@9", deadline)

    return injected


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def frames(pid: int) -> list[str]:
    """Return the names of the main thread's functions, innermost first; none if not to be seen."""
    py_spy = str(Path(sys.executable).with_name("py-spy"))
    command = [py_spy, "dump", "--nonblocking", "--pid", str(pid)]
    dump = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    return re.findall(r"^ {4}(?:\S+\.)?(\S+) \(", dump.stdout, re.MULTILINE)


@pytest.mark.parametrize(("kind", "innermost"), BLOCKING.items())
def test_it_blocks_in_the_call_that_it_is_about(kind: str, innermost: str, inject: Inject) -> None:
    rank = inject(kind)
    wait_until(lambda: frames(rank.pid)[:1] == [innermost])
    assert rank.poll() is None
    assert f"_{kind}" in frames(rank.pid)


def test_a_held_gil_lets_no_other_thread_run(start: Inject, package: Path) -> None:
    other = "import threading; threading.Timer(0.5, print, ['ran']).start();"
    rank = start(sys.executable, "-c", other + RANK, package, "gil@9", 60)
    wait_until(lambda: frames(rank.pid)[:1] == ["_gil"])
    time.sleep(1.0)
    rank.kill()
    assert rank.communicate(timeout=DEADLINE)[0] == ""


def test_stop_stops_the_process(inject: Inject) -> None:
    rank = psutil.Process(inject("stop").pid)
    wait_until(lambda: rank.status() == psutil.STATUS_STOPPED)


@pytest.mark.parametrize(("kind", "status"), [("exit", 0), ("raise", 1), ("kill", -signal.SIGKILL)])
def test_it_ends_as_it_is_called(kind: str, status: int, inject: Inject) -> None:
    rank = inject(kind)
    output, errors = rank.communicate(timeout=DEADLINE)
    assert rank.returncode == status
    assert output == ""
    assert ("RuntimeError" in errors) == (kind == "raise")


@pytest.mark.parametrize("kind", ["slow", "trickle"])
def test_slow_work_takes_three_timeouts_and_goes_on(kind: str, inject: Inject) -> None:
    rank = inject(kind, deadline=0.5)
    output, errors = rank.communicate(timeout=DEADLINE)
    assert rank.returncode == 0, errors
    assert float(output) >= 1.5


def test_slow_work_is_seen_in_several_places(inject: Inject) -> None:
    rank = inject("slow")
    seen: set[str] = set()

    def several() -> bool:
        seen.update(frames(rank.pid)[:1])
        return len(seen) >= 3

    wait_until(several)


@pytest.mark.parametrize("kind", WITH_HELPERS)
def test_its_helper_ends_with_the_rank(kind: str, inject: Inject) -> None:
    rank = inject(kind)
    children = psutil.Process(rank.pid).children
    wait_until(lambda: len(children()) == 1)
    wait_until(lambda: f"_{kind}" in frames(rank.pid) and "readline" not in frames(rank.pid)[:1])
    helper = children()[0]
    rank.kill()
    rank.wait(DEADLINE)
    helper.wait(DEADLINE)
    assert not helper.is_running()


def test_every_kind_is_tried_here() -> None:
    tried = {*BLOCKING, "stop", "exit", "raise", "kill", "slow", "trickle"}
    assert tried == set(KINDS)


@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(["9", "wandb_logger", "logger"]),
    st.none() | st.integers(0, 10**6),
)
def test_a_checkpoint_may_be_given_in_any_way(kind: str, place: str, rank: int | None) -> None:
    text = f"{kind}@{place}" + ("" if rank is None else f":rank{rank}")
    found = parse_injection(text, TABLE, {"logger": "wandb_logger"})
    assert found == Injection(kind, "wandb_logger", rank)


def test_a_phase_is_a_place_too() -> None:
    assert parse_injection("sleep@first_batch:rank1", TABLE) == Injection("sleep", "first_batch", 1)


def test_it_is_meant_for_its_own_rank_or_for_all() -> None:
    assert parse_injection("sleep@9:rank1", TABLE).matches("wandb_logger", 1)
    assert not parse_injection("sleep@9:rank1", TABLE).matches("wandb_logger", 0)
    assert not parse_injection("sleep@9", TABLE).matches("training", 0)
    assert all(parse_injection("sleep@9", TABLE).matches("wandb_logger", rank) for rank in range(3))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("sleep", ["'sleep'", "KIND@CHECKPOINT:rankN"]),
        ("sleep@", ["'sleep@'"]),
        ("sleep@9:1", ["'sleep@9:1'"]),
        ("sleep@9:rank", ["'sleep@9:rank'"]),
        ("slep@9", ["'slep'", "trickle", "did you mean 'sleep'?"]),
        ("sleep@wandb_loger", ["'wandb_loger'", "first_batch", "did you mean 'wandb_logger'?"]),
        ("sleep@13", ["'13'", "9 to 12"]),
        ("sleep@0", ["'0'"]),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(text: str, named: list[str]) -> None:
    with pytest.raises(UsageError) as raised:
        parse_injection(text, TABLE)
    assert [part for part in named if part not in str(raised.value)] == []


@given(st.text())
def test_no_text_is_anything_but_an_injection_or_a_usage_error(text: str) -> None:
    try:
        found = parse_injection(text, TABLE)
    except UsageError:
        return
    assert found.kind in KINDS
    assert found.place in ("wandb_logger", "training", "first_batch")
