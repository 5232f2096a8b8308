"""Scripts of users' own under the watch: the same to themselves, and their steps are told."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hangbisect.rank.watched.variables import variables
from quick_starts import QUICK_STARTS, QuickStart

DEADLINE = 150.0  # seconds for a job, on a busy machine
Start = Callable[..., "subprocess.Popen[str]"]
BY_NAME = {quick.name: quick for quick in QUICK_STARTS}

PUT_BACK = """
import sys
import torch, torch.distributed as dist, torch.utils.data as data
from torch.distributed import distributed_c10d as c10d
from torch.utils.data import dataloader

def places():
    found = [torch.compile, torch.load, torch.serialization.load, torch.autograd.backward]
    found += [torch.nn.parallel.DistributedDataParallel.__init__]
    found += [dataloader._BaseDataLoaderIter.__next__, torch.cuda._lazy_init]
    for name in ("all_reduce", "barrier", "init_process_group"):
        one = getattr(c10d, name)
        while one is not None:
            found.append(one)
            cells = [c.cell_contents for c in getattr(one, "__closure__", None) or ()]
            one = next(filter(callable, cells), None)
    found = [one for one in found if hasattr(one, "__code__")]
    return {f"{n} {one.__qualname__}": one.__code__.co_filename for n, one in enumerate(found)}

before = places()
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for rows in data.DataLoader(torch.randn(12, 2), batch_size=2):
    net(rows).sum().backward()
    optimizer.step()
ours = [name for name, file in before.items() if "hangbisect" in file or "collective_log" in file]
after = [file for file in places().values() if "hangbisect" in file or "collective_log" in file]
hooks = [*sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks]
finders = [type(finder).__module__ for finder in sys.meta_path]
print(len(ours) > 5, after, hooks, [name for name in finders if "after_import" in name])
"""
OWN = """
import hangbisect, torch, stepping

with hangbisect.step("index"):
    stepping.build()
try:
    stepping.fail()
except ValueError:
    print("failed")
"""
STEPPING = """
def build(): return 1
def fail(): raise ValueError
"""


def run(
    start: Start, quick: QuickStart, folder: Path, watched: bool, **more: str
) -> tuple[int, str, str]:
    """Return status, stdout and stderr of a script."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(quick.source, encoding="utf-8")
    environ = {n: v for n, v in os.environ.items() if not n.startswith("HANGBISECT_")}
    environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    if watched:
        environ |= {**variables({"run-dir": str(folder.parent / "run")}, environ), **more}
    process = start(*quick.command, cwd=folder, env=environ)
    out, err = process.communicate(timeout=DEADLINE)
    if watched:
        _until_the_watch_has_gone(folder.parent)
    return process.returncode, out, err


def _until_the_watch_has_gone(folder: Path) -> None:
    """Wait until the monitors have removed what they needed."""
    jobs = {event["job"] for event in told(folder, "hello")}
    end = time.monotonic() + DEADLINE
    while any(Path("/dev/shm", f"hangbisect-{job}").exists() for job in jobs):
        assert time.monotonic() < end, f"the monitor of {jobs} does not end"
        time.sleep(0.05)


def told(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the events of a kind that ranks told."""
    lines = (folder / "run" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["t"] == kind]


def begun(folder: Path, rank: int) -> list[str]:
    """Return the steps that a rank began, in order."""
    return [event["step"] for event in told(folder, "begin") if event["rank"] == rank]


def test_a_training_prints_what_it_does_without_us_and_its_steps_are_told(
    start: Start, tmp_path: Path
) -> None:
    quick = BY_NAME["torch DDP"]
    plain = run(start, quick, tmp_path / "job", watched=False)
    watched = run(start, quick, tmp_path / "job", watched=True)
    assert watched[:2] == plain[:2] == (0, plain[1])
    for rank in (0, 1):
        steps = begun(tmp_path, rank)
        assert steps == sorted(set(steps), key=steps.index)
        wanted = ["import_torch", "process_group", "ddp", "data_workers", "first_batch"]
        wanted += ["first_backward", "first_step", "first_all_reduce"]
        assert [step for step in steps if step in wanted] == wanted
    ended = {(event["rank"], event["step"], event["k"]) for event in told(tmp_path, "end")}
    assert ended == {(e["rank"], e["step"], e["k"]) for e in told(tmp_path, "begin")}
    assert {event["rank"] for event in told(tmp_path, "quiet")} == {0, 1}
    assert "barrier" not in begun(tmp_path, 0)  # past the first steps it is silent


@pytest.mark.parametrize("name", ["raises", "exits with 3"])
def test_a_script_ends_and_complains_as_without_us(name: str, start: Start, tmp_path: Path) -> None:
    quick = BY_NAME[name]
    plain = run(start, quick, tmp_path / "job", watched=False)
    status, out, err = run(start, quick, tmp_path / "job", watched=True)
    assert (status, out) == plain[:2] == (quick.status, "")
    assert plain[2] in "".join(
        line for line in err.splitlines(keepends=True) if "[R0/1]" not in line
    )


def test_ranks_that_are_spawned_are_known_when_they_join_a_group(
    start: Start, tmp_path: Path
) -> None:
    status, out, err = run(start, BY_NAME["torch spawn"], tmp_path / "job", watched=True)
    assert (status, out) == (0, "sum 3.0\ndone\n"), err
    joined = [event for event in told(tmp_path, "hello") if event["world_size"] == 2]
    assert sorted(event["rank"] for event in joined) == [0, 1]


@pytest.mark.skipif(importlib.util.find_spec("pytorch_lightning") is None, reason="no Lightning")
def test_lightning_starts_its_other_ranks_and_each_is_known(start: Start, tmp_path: Path) -> None:
    quick = BY_NAME["Lightning, its own launch"]
    status, out, err = run(start, quick, tmp_path / "job", watched=True)
    assert status == 0, err
    assert out.startswith("[('rate', 0.1), ('width', 4)] 7\n")
    assert {event["rank"] for event in told(tmp_path, "hello")} == {0, 1}
    for rank in (0, 1):
        steps = begun(tmp_path, rank)
        wanted = ["lightning_module", "data_module", "trainer", "fit", "setup_environment"]
        assert [step for step in steps if step in wanted] == wanted
    assert "CHECKPOINT 11: Trainer ready" in err
    groups = [event for event in told(tmp_path, "begin") if event["step"] == "process_group"]
    assert [event["depth"] for event in groups] == [2, 2]  # inside fit and setup_environment


def test_past_the_first_steps_everything_is_as_without_us(start: Start, tmp_path: Path) -> None:
    quick = QuickStart("put back", BY_NAME["raises"].command, PUT_BACK)
    status, out, err = run(start, quick, tmp_path / "job", watched=True)
    assert (status, out) == (0, "True [] [] []\n"), err


def test_steps_that_a_script_names_itself_are_told(start: Start, tmp_path: Path) -> None:
    quick = QuickStart("own", BY_NAME["raises"].command, OWN)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "stepping.py").write_text(STEPPING, encoding="utf-8")
    named = {"HANGBISECT_STEP": "stepping:build,stepping:fail"}
    status, out, err = run(start, quick, tmp_path / "job", watched=True, **named)
    assert (status, out) == (0, "failed\n"), err
    assert begun(tmp_path, 0)[-3:] == ["index", "build", "fail"]
    (failed,) = [event["step"] for event in told(tmp_path, "end") if event["failed"]]
    assert failed == "fail"
