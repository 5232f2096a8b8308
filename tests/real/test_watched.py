"""Scripts of users' own under the watch: the same to themselves, and their steps are told."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import script_shelf
from compared_starts import compared
from script_shelf import Script

from ..programs import WITHOUT_COMPILER
from .verdicts import REACHED
from .watched_scripts import ended, told, written

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
print(len(ours) > 5, after, len(hooks), [name for name in finders if "after_import" in name])
"""
OWN = """
import hangbisect

with hangbisect.step("index"):  # before any library that the watch knows
    import stepping
    stepping.build()
stepping.Index()
try:
    stepping.fail()
except ValueError:
    print("failed")
"""
STEPPING = """
def build(): return 1
def fail(): raise ValueError
class Index:
    def __init__(self): self.built = build()
"""
NAMED = "stepping:build,stepping:fail,stepping:Index,stepping:biuld,elsewhere:build"
# What the watch might spoil for a program.
PROGRAMS = [one.name for one in script_shelf.chosen(["program_"])]
# Interpreters that read no variable (-E, -I), or find another sitecustomize: we are not in them.
UNREACHED = ("program_ranks_with_modules_of_common_names",)


def shelved(name: str) -> Script:
    return script_shelf.load(script_shelf.FOLDER / f"{name}.py")


def begun(folder: Path, rank: int) -> list[str]:
    """Return the steps that a rank began, in order."""
    return [event["step"] for event in told(folder, "begin") if event["rank"] == rank]


def test_a_training_prints_what_it_does_without_us_and_its_steps_are_told(tmp_path: Path) -> None:
    script = shelved("ddp_quick_start")
    both = compared(script, lambda watched: ended(script, tmp_path, watched))
    assert not both.differences, "\n".join(both.differences)
    for rank in (0, 1):
        steps = begun(tmp_path, rank)
        assert steps == sorted(set(steps), key=steps.index)
        wanted = ["import_torch", "process_group", "ddp", "first_backward", "first_step"]
        assert [step for step in steps if step in wanted] == wanted
    over = {(event["rank"], event["step"], event["k"]) for event in told(tmp_path, "end")}
    assert over == {(e["rank"], e["step"], e["k"]) for e in told(tmp_path, "begin")}
    assert {event["rank"] for event in told(tmp_path, "quiet")} == {0, 1}


HOOKED = """
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
steps = []
register_optimizer_step_post_hook(lambda optimizer, args, kwargs: steps.append(1))
for _ in range(9):
    net(torch.ones(2)).sum().backward()
    optimizer.step()
print(len(steps))
"""


def test_a_hook_of_the_script_behind_ours_is_called_at_every_step(tmp_path: Path) -> None:
    done = ended(written(WITHOUT_COMPILER + HOOKED, tmp_path), tmp_path / "run")
    assert (done.status, done.out) == (0, "9\n"), done.err
    assert told(tmp_path / "run", "quiet")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_and_says_what_it_does_without_us(name: str, tmp_path: Path) -> None:
    script = shelved(name)
    both = compared(script, lambda watched: ended(script, tmp_path, watched))
    assert not both.differences, "\n".join(both.differences)
    if name in UNREACHED:
        assert not (tmp_path / "events.jsonl").exists()
    else:
        assert told(tmp_path, "hello"), "it was not watched"


@pytest.mark.parametrize("name", ["spawn_quick_start", "spawn_quick_start_of_another_program"])
def test_ranks_that_are_spawned_are_known_when_they_join_a_group(tmp_path: Path, name: str) -> None:
    done = ended(shelved(name), tmp_path)
    assert done.status == 0, done.err
    joined = [event for event in told(tmp_path, "hello") if event["world_size"] == 2]
    assert sorted(event["rank"] for event in joined) == [0, 1]


@pytest.mark.skipif(importlib.util.find_spec("pytorch_lightning") is None, reason="no Lightning")
def test_lightning_starts_its_other_ranks_and_each_is_known(tmp_path: Path) -> None:
    done = ended(shelved("lightning_module_quick_start"), tmp_path)
    assert done.status == 0, done.err
    assert done.out.startswith("[('rate', 0.1), ('width', 4)] 7\n")
    assert {event["rank"] for event in told(tmp_path, "hello")} == {0, 1}
    for rank in (0, 1):
        steps = begun(tmp_path, rank)
        wanted = ["lightning_module", "data_module", "trainer", "fit", "setup_environment"]
        assert [step for step in steps if step in wanted] == wanted
    assert REACHED["trainer"] in done.err
    groups = [event for event in told(tmp_path, "begin") if event["step"] == "process_group"]
    assert [event["depth"] for event in groups] == [2, 2]  # inside fit and setup_environment


def test_past_the_first_steps_all_but_a_hook_is_as_without_us(tmp_path: Path) -> None:
    """It tells that steps come. Without a process group there are no collectives to be logged."""
    done = ended(written(PUT_BACK, tmp_path), tmp_path / "run")
    assert (done.status, done.out) == (0, "True [] 1 []\n"), done.err


def test_steps_that_a_script_names_itself_are_told(tmp_path: Path) -> None:
    script = written(OWN, tmp_path, stepping=STEPPING)
    done = ended(script, tmp_path / "run", HANGBISECT_STEP=NAMED)
    assert (done.status, done.out) == (0, "failed\n"), done.err
    assert begun(tmp_path / "run", 0) == ["index", "build", "Index", "build", "fail"]
    (failed,) = [event["step"] for event in told(tmp_path / "run", "end") if event["failed"]]
    assert failed == "fail"
    assert "--step stepping:biuld: stepping has no 'biuld'; did you mean 'build'?" in done.err
    assert "--step elsewhere:build: elsewhere was never imported" in done.err
