"""What holds for the table of every pipeline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hangbisect.base.argument_types import Parser
from hangbisect.base.pipeline import PIPELINES, find_pipeline, find_walked_pipeline
from hangbisect.rank.watch_options import add_watch_options
from hangbisect.toggles.table import toggles_of

each = pytest.mark.parametrize("name", PIPELINES)


@each
def test_checkpoints_are_numbered_from_nought_and_named_once(name: str) -> None:
    table = find_pipeline(name).table
    assert [row.number for row in table] == [*range(len(table))]
    names = [row.name for row in table] + [p.name for row in table for p in row.phases]
    assert len(set(names)) == len(names)
    assert all(row.title and row.deadline > 0 for row in table)


@each
def test_other_names_are_those_of_steps(name: str) -> None:
    walked = find_pipeline(name)
    steps = {row.name for row in walked.table}
    phases = {phase.name for row in walked.table for phase in row.phases}
    assert {step for _, step in walked.aliases} <= steps
    assert not {alias for alias, _ in walked.aliases} & (steps | set(walked.called))
    assert walked.shows_itself in steps | phases


@each
def test_it_takes_the_flags_of_its_toggles(name: str) -> None:
    parser = Parser()
    add_watch_options(parser)
    find_pipeline(name).add_arguments(parser)
    mine = {entry.flag for entry in toggles_of(name) if entry.flag}
    assert mine <= set(parser.flags)


@each
def test_its_toggles_are_whole_as_it_has_them(name: str) -> None:
    for entry in toggles_of(name):
        assert entry.default is None or entry.default in entry.values
        assert not entry.variants or all(v.pipeline != name for v in entry.variants)


@each
def test_a_command_tells_which_pipeline_it_walks(name: str) -> None:
    assert find_walked_pipeline(["torchrun", "-m", "bisect", "--pipeline", name]).name == name
    assert find_walked_pipeline(["torchrun", "-m", "bisect", f"--pipeline={name}"]).name == name


def test_without_a_word_it_is_the_first_and_so_for_a_name_that_there_is_not() -> None:
    assert find_walked_pipeline(["python", "-m", "bisect"]).name == PIPELINES[0]
    assert (
        find_walked_pipeline(["python", "-m", "bisect", "--pipeline", "start"]).name == PIPELINES[0]
    )


@each
def test_its_help_is_there_without_any_library(name: str, package: Path) -> None:
    command = [sys.executable, "-I", "-S", str(package), "--pipeline", name, "--help"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stderr
    assert f"checkpoints of {name}" in asked.stdout
