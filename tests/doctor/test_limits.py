"""Limits: where a number becomes a warning or a problem."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hangbisect.base.words import GIB, MIB
from hangbisect.doctor import limits
from hangbisect.doctor.limits import Bounds, tasks_of_group
from hypothesis import given
from hypothesis import strategies as st

from .made_up import levels, said, setting

FREE = Bounds(
    locked=None,
    files=None,
    files_most=None,
    tasks=None,
    tasks_now=10,
    tasks_free=False,
    address=None,
    seconds=None,
    group_tasks=None,
    group_tasks_now=None,
    memory=None,
    memory_free=None,
    machine_free=64 * GIB,
    infiniband=(),
)


def test_without_limits_all_is_well() -> None:
    judges = (limits.files, limits.tasks, limits.locked, limits.memory)
    assert [levels(judge, FREE) for judge in (*judges, limits.cpu_time)] == [["ok"]] * 5


def test_open_files() -> None:
    few = replace(FREE, files=512, files_most=4096)
    assert levels(limits.files, few) == ["warning"]
    assert levels(limits.files, replace(few, files=128)) == ["problem"]
    assert levels(limits.files, replace(few, files=1024)) == ["ok"]
    (found,) = limits.files(setting(), few)
    assert found.next == "ulimit -n 4096"


def test_processes_are_counted_against_each_limit_and_the_ranks() -> None:
    user = replace(FREE, tasks=200, tasks_now=150)
    assert levels(limits.tasks, user) == ["problem"]
    assert levels(limits.tasks, replace(user, tasks=300)) == ["warning"]
    assert levels(limits.tasks, replace(user, tasks=4096)) == ["ok"]
    assert levels(limits.tasks, replace(user, tasks_free=True)) == ["ok"]
    eight = setting(launcher="torchrun", world=8)
    assert levels(limits.tasks, replace(user, tasks=600), eight) == ["problem"]
    group = replace(FREE, group_tasks=100, group_tasks_now=90)
    assert levels(limits.tasks, group) == ["problem"]
    assert levels(limits.tasks, replace(group, tasks=9999)) == ["ok", "problem"]


def test_locked_memory_matters_with_infiniband_alone() -> None:
    little = replace(FREE, locked=64 * 1024)
    assert levels(limits.locked, little) == ["ok"]
    assert levels(limits.locked, replace(little, infiniband=("mlx5_0",))) == ["warning"]


def test_memory() -> None:
    assert levels(limits.memory, replace(FREE, machine_free=MIB)) == ["problem"]
    tight = replace(FREE, memory=8 * GIB, memory_free=2 * GIB)
    assert said(limits.memory, tight)[0][0] == "warning"
    assert levels(limits.memory, replace(FREE, address=GIB)) == ["ok", "warning"]
    assert levels(limits.cpu_time, replace(FREE, seconds=600)) == ["warning"]


def test_the_tightest_group_of_both_versions(tmp_path: Path) -> None:
    for folder, most, now in (
        ("pids/docker", "100", "20"),
        ("pids", "max", "500"),
        ("a/b", "1000", "990"),
        ("a", "5000", "990"),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "pids.max").write_text(f"{most}\n")
        (tmp_path / folder / "pids.current").write_text(f"{now}\n")
    assert tasks_of_group("4:pids:/docker\n2:memory:/docker\n", tmp_path) == (100, 20)
    assert tasks_of_group("0::/a/b\n", tmp_path) == (1000, 990)
    assert tasks_of_group("0::/a/b\n4:pids:/docker\n", tmp_path) == (1000, 990)
    assert tasks_of_group("0::/../elsewhere\n", tmp_path) == (None, None)


@given(st.text("0123456789:/.,pids\n\0") | st.text())
def test_any_text_is_taken_for_groups(text: str) -> None:
    assert tasks_of_group(text, Path("/not/there")) == (None, None)


def test_this_machine_is_read() -> None:
    bounds = limits.read_bounds(setting())
    assert bounds.tasks_now > 0
