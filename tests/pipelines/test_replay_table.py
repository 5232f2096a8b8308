"""The table of the replay: the numbers, names and titles that others rely on."""

from __future__ import annotations

from hangbisect.base.pipeline import find_pipeline

CONTRACT = """
 0 launcher      Ranks started           launcher
 1 script        Script started          interpreter
 2 arguments     Args parsed             arguments
 3 inputs        Captured inputs listed  capture
 4 preflight     Preflight passed        module
 5 memory_budget Memory budget made      memory
 6 module        Module built            module
 7 distributed   Process group ready     strategy
 8 weights       Weights loaded          module
 9 ready         Module ready            module
10 replay        Inputs replayed         module
"""
PHASES = ("first_input", "first_forward", "first_backward", "steady", "teardown")


def test_the_table_is_the_contract() -> None:
    rows = [line.split() for line in CONTRACT.strip().splitlines()]
    expected = [(int(row[0]), row[1], " ".join(row[2:-1]), row[-1]) for row in rows]
    table = find_pipeline("replay").table
    assert [(c.number, c.name, c.title, c.component) for c in table] == expected


def test_a_replay_has_its_phases_and_only_the_steady_one_is_never_late() -> None:
    replay = next(row for row in find_pipeline("replay").table if row.name == "replay")
    assert tuple(phase.name for phase in replay.phases) == PHASES
    assert [p.name for p in replay.phases if p.deadline is None] == ["steady"]


def test_what_refuses_can_be_skipped_so_that_the_failure_can_be_seen() -> None:
    assert find_pipeline("replay").skippable == ("preflight", "memory_budget")


def test_the_model_of_other_pipelines_is_the_module_here() -> None:
    assert dict(find_pipeline("replay").aliases) == {"model": "module"}
