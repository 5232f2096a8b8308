"""Which Python a command has, and which environment a start of it gets."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.toggles.command_toggles import AppliedSetting
from hangbisect.toggles.table import TOGGLES
from hangbisect.toggles.toggle import version_toggle
from hangbisect.trials.package_versions import (
    InstalledPackage,
    JobPython,
    VersionEnvironments,
    find_python,
    order_versions,
    parse_versions,
    read_python,
)

from .simulated_job import Job, hangs_unless, plan

FILELOCK = version_toggle("filelock", "3.20.0", ("3.20.3", "3.21.0"))


def test_versions_are_read_by_package_each_once() -> None:
    words = ["Huggingface_Hub=1.0,1.0.0", "vllm=0.19.1", "huggingface-hub=1.1"]
    assert parse_versions(words) == {"huggingface-hub": ("1.0", "1.1"), "vllm": ("0.19.1",)}
    with pytest.raises(UsageError, match="no version of vllm"):
        parse_versions(["vllm=>=1"])


def test_the_nearest_version_is_the_least_change() -> None:
    wanted = ["3.20.0", "3.21.0", "4.10", "4.9", "4.2"]
    assert order_versions("4.2.0", wanted) == ["4.9", "3.21.0", "4.10", "3.20.0"]
    assert order_versions("of-our-own", wanted) == wanted


def write_program(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def test_the_python_of_a_command_is_the_first_that_it_names_or_a_program_of_it(
    tmp_path: Path,
) -> None:
    python = write_program(tmp_path / "env of it" / "bin" / "python3", "")
    other = write_program(tmp_path / "other" / "python", "")
    long = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\nimport torch\n"
    torchrun = write_program(python.parent / "torchrun", long)
    srun = write_program(tmp_path / "bin" / "srun", "\x7fELF")
    vllm = write_program(tmp_path / "bin" / "vllm", f"#!{other}\nimport vllm\n")
    path = {"PATH": f"{srun.parent}{os.pathsep}{python.parent}"}
    for command, found in (
        ((str(other), "train.py"), other),
        (("torchrun", "--nproc_per_node=2", "train.py"), python),
        ((str(torchrun), "train.py"), python),
        (("srun", "-n", "2", "vllm", "serve"), other),
        (("srun", "python3", "train.py"), python),
        (("bash", "train.sh"), python),  # the first of PATH
        ((str(vllm), "serve"), other),
    ):
        assert find_python(command, path) == str(found), command


def test_a_python_says_what_is_installed_but_for_the_folder_it_is_asked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine-1.0.dist-info").mkdir()
    (tmp_path / "mine-1.0.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
    (tmp_path / "json.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    found = read_python(sys.executable)
    assert found.executable == sys.executable
    assert found.find("PyTest") == pytest.__version__
    assert found.find("mine") is None


def test_a_start_gets_the_environment_and_words_that_name_the_jobs_programs_are_its_own(
    tmp_path: Path,
) -> None:
    scripts = tmp_path / "bin"
    for name in ("python", "torchrun"):
        write_program(scripts / name, f"#!{scripts}/python\n")
    write_program(scripts / "nvcc", "\x7fELF")
    python = JobPython(str(scripts / "python"), str(scripts), (), (InstalledPackage("a", "1"),))
    environments = VersionEnvironments(python, ("uv",), tmp_path / "iso")
    command = (str(scripts / "torchrun"), "--nvcc", str(scripts / "nvcc"), "torchrun", "./python")
    made = AppliedSetting(command, {"A": "1"}, {"b": "2", "a": "2"})
    started = environments.run_in(made, {"PATH": "/usr/bin", "VIRTUAL_ENV": str(tmp_path)})
    own = tmp_path / "iso" / "versions" / "a-2+b-2"
    assert started.command == (str(own / "bin" / "torchrun"), *command[1:])
    assert started.environment == {
        **{"A": "1", "PATH": f"{own / 'bin'}{os.pathsep}/usr/bin"},
        "VIRTUAL_ENV": str(own),
    }
    as_it_is = AppliedSetting(command, {})
    assert environments.run_in(as_it_is, {}) is as_it_is


def test_each_version_is_tried_alone_from_the_last_on_and_the_least_change_is_confirmed() -> None:
    job = Job(hangs_unless({"filelock_version": ("3.20.3", "3.21.0")}))
    job.verdict = replace(job.verdict, component=None, try_=())
    isolation = job.isolate(plan(table=(*TOGGLES, FILELOCK)))
    assert [dict(ask.setting) for ask in job.asked[:3]] == [
        {},
        {"filelock_version": "3.21.0"},
        {"filelock_version": "3.20.3"},
    ]
    assert len(job.asked) == 3 + 6
    assert isolation.outcome == "isolated"
    (change,) = isolation.changes
    assert (change.value, change.hung) == ("3.20.3", ("3.20.0",))


def test_where_no_version_avoids_it_the_other_toggles_are_tried() -> None:
    job = Job(hangs_unless({"wandb": ("rank0", "offline", "off")}))
    isolation = job.isolate(plan(table=(*TOGGLES, FILELOCK)))
    assert [change.toggle for change in isolation.changes] == ["wandb"]
    assert "filelock_version=3.21.0" in isolation.not_it


def test_a_version_with_which_it_fails_in_another_way_is_left_out() -> None:
    def behaves(setting: object, number: int) -> object:
        assert isinstance(setting, dict)
        return "other" if setting.get("filelock_version") else "hang"

    job = Job(behaves)  # type: ignore[arg-type]  # it returns one of these two
    isolation = job.isolate(plan(table=(*TOGGLES, FILELOCK), only=("filelock_version",)))
    assert (isolation.outcome, isolation.why) == (
        *("not_isolated", "no version that was named could be tried"),
    )
    assert isolation.unused["filelock_version"] == (
        "with 3.21.0 and 3.20.3 it failed in another way"
    )
