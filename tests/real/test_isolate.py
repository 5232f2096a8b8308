"""Real jobs that hang by real settings, and what isolate finds about them."""

from __future__ import annotations

import importlib.resources
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
from hangbisect.base.checkpoints import STARTUP_BY_NAME

LIMIT = 240.0  # seconds for an isolation, on a busy machine
# A step that hangs by what it is told. No heavy import: a start takes a second.
STUCK = """
import os, signal, time
from pathlib import Path

def one(context):
    if context.args.make_logs_dir == "all":
        time.sleep(1000)

def pair(context):
    if context.args.num_workers or os.environ.get("OMP_NUM_THREADS") != "1":
        time.sleep(1000)

def always(context):
    time.sleep(1000)

def crash(context):
    raise RuntimeError("no such file")

def harmful(context):
    if context.args.strategy == "ddp":
        raise RuntimeError("ddp cannot do this")
    one(context)

def sometimes(context):
    starts = Path("starts")
    starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
    if context.args.make_logs_dir == "all" and len(starts.read_text()) > 1:
        time.sleep(1000)
"""


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str
    folder: Path

    @property
    def json(self) -> Any:
        file = importlib.resources.files("hangbisect") / "data" / "isolation.schema.json"
        found = json.loads((self.folder / "isolation.json").read_text())
        jsonschema.validate(found, json.loads(file.read_text(encoding="utf-8")))
        return found

    @property
    def changes(self) -> dict[str, str]:
        return {one["toggle"]: one["value"] for one in self.json["changes"]}


class Isolate:
    """Runs `hangbisect isolate` in a folder, as a person would."""

    def __init__(self, folder: Path, package: Path, start: Callable[..., Any]) -> None:
        self.folder = folder
        self._program = [sys.executable, str(package)]
        self._start = start
        (folder / "stuck.py").write_text(STUCK)

    def job(self, function: str, *also: str) -> list[str]:
        """Return the command of a job that hangs as a function above says."""
        words = ["--until", "logs_directory", "--use", f"logs_directory=stuck:{function}"]
        return [*self._program, *words, *also]

    def begin(self, *words: str, command: Sequence[str] = ()) -> Any:
        all_words = ["isolate", "--stall", "2", *words]
        all_words += ["--", *command] if command else []
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("HANGBISECT_", "OMP_"))}
        environ["HANGBISECT_REPORTS"] = "later"
        return self._start(*self._program, *all_words, cwd=self.folder, env=environ)

    def end(self, process: Any, name: str = "iso") -> Answer:
        out, err = process.communicate(timeout=LIMIT)
        return Answer(process.returncode, out, err, self.folder / name)

    def __call__(self, *words: str, command: Sequence[str] = ()) -> Answer:
        return self.end(self.begin("--run-dir", "iso", *words, command=command))


@pytest.fixture
def isolate(tmp_path: Path, package: Path, start: Callable[..., Any]) -> Isolate:
    return Isolate(tmp_path, package, start)


def test_interrupted_it_goes_on_repeats_no_start_and_finds_and_proves_the_toggle(
    isolate: Isolate,
) -> None:
    process = isolate.begin("--run-dir", "iso", "--confirm", "1", command=isolate.job("one"))
    folder = isolate.folder / "iso" / "trials"
    end = time.monotonic() + LIMIT
    while not (folder / "03").is_dir():
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    first = isolate.end(process)
    assert first.status == 130, first.err
    assert first.out.startswith("INTERRUPTED  2 starts")
    assert "hangbisect isolate --resume iso" in first.out
    assert "trial 2 of about" in first.err
    before = [trial["seconds"] for trial in first.json["trials"]]
    second = isolate.end(isolate.begin("--resume", "iso"))
    assert second.status == 0, second.err
    assert "trial 2 of" not in second.err
    assert "trial 3 of" in second.err
    assert second.out.startswith("ISOLATED  5 starts, ")
    assert second.changes == {"make_logs_dir": "rank0"}
    found = second.json
    assert found["paste"].endswith("--make-logs-dir rank0")
    assert (found["with_it"]["hangs"], found["with_it"]["starts"]) == (0, 1)
    assert (found["without"]["hangs"], found["without"]["starts"]) == (1, 1)
    assert [trial["number"] for trial in found["trials"]] == [*range(1, 6)]
    assert [trial["seconds"] for trial in found["trials"]][:2] == before
    heads = [line.split()[0] for line in second.out.splitlines()]
    labels = ("ISOLATED", "change", "command", "with", "without", "unused", "costs", "#", "report")
    order = [heads.index(label) for label in labels]
    assert order == sorted(order)
    assert (second.folder / "report.md").read_text().startswith("```\nISOLATED")


def test_two_toggles_that_only_together_avoid_it_are_exactly_the_answer_one_of_them_a_variable(
    isolate: Isolate,
) -> None:
    few = "omp_num_threads,num_workers"
    command = isolate.job("pair", "--num-workers", "2")
    answer = isolate("--json", "--confirm", "0", "--only", few, command=command)
    assert answer.status == 0, answer.err
    assert answer.changes == {"omp_num_threads": "1", "num_workers": "0"}
    assert answer.json["paste"].startswith("OMP_NUM_THREADS=1 ")
    assert answer.json["paste"].endswith(" --num-workers 0")
    assert json.loads(answer.out) == answer.json  # all of standard output


def test_what_hangs_with_all_safe_is_said_with_its_stacks(isolate: Isolate) -> None:
    answer = isolate(command=isolate.job("always"))
    assert answer.status == 3, answer.err
    assert answer.out.startswith("HANGS EVEN WITH ALL SAFE")
    assert answer.json["changes"] == []
    assert "iso/trials/01/stacks" in answer.out
    assert (answer.folder / "trials" / "01" / "stacks" / "rank-0.txt").exists()


def test_what_crashes_is_no_hang_and_nothing_is_searched(isolate: Isolate) -> None:
    answer = isolate(command=isolate.job("crash"))
    assert answer.status == 5, answer.err
    assert answer.out.startswith("NOT ISOLATED  1 start")
    number = STARTUP_BY_NAME["logs_directory"].number
    assert f"as you run it it does not hang: crash at checkpoint {number}" in answer.out


def test_a_scenario_file_is_isolated_with_what_it_says_and_a_toggle_that_does_harm_is_named(
    isolate: Isolate,
) -> None:
    pytest.importorskip("pydantic")
    (isolate.folder / "mine.yaml").write_text(
        "pipeline: startup\n"
        "arguments: --until logs_directory --use logs_directory=stuck:harmful\n"
        "launcher: python\nranks: 1\n"
        "isolate: {only: [strategy, make_logs_dir], confirm: 0}\n"
    )
    answer = isolate("mine.yaml")
    assert answer.status == 0, answer.err
    assert answer.changes == {"make_logs_dir": "rank0"}
    assert answer.json["harmful"] == ["strategy=ddp"]
    assert answer.json["unused"]["wandb"] == "not in --only"


def test_a_hang_that_comes_and_goes_is_searched_as_one(isolate: Isolate) -> None:
    answer = isolate(
        "--confidence", "0.5", "--only", "make_logs_dir", command=isolate.job("sometimes")
    )
    assert answer.status == 0, answer.err
    assert answer.json["flaky"] is True
    assert answer.changes == {"make_logs_dir": "rank0"}
    assert answer.json["p_value"] <= 0.25


def test_no_start_is_left_behind_by_a_terminated_isolation(isolate: Isolate) -> None:
    process = isolate.begin("--run-dir", "iso", command=isolate.job("one"))
    end = time.monotonic() + LIMIT
    while not (ranks := _ranks_in(isolate.folder)):
        assert time.monotonic() < end
        time.sleep(0.1)
    process.terminate()
    assert isolate.end(process).status == 130
    while left := [pid for pid in ranks if psutil.pid_exists(pid)]:
        assert time.monotonic() < end, left  # one that was killed is there until init has seen it
        time.sleep(0.1)


def _ranks_in(folder: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and "isolate" not in process.cmdline():
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_a_command_of_ones_own_is_not_started_without_leave(isolate: Isolate) -> None:
    answer = isolate(command=[sys.executable, "-c", "open('made', 'w')"])
    assert answer.status == 2
    assert "about" in answer.err
    assert "--yes" in answer.err
    assert not (isolate.folder / "made").exists()
