"""The cases of the zoo: each is whole, and says only what there is."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.base.pipeline import find_pipeline
from hangbisect.base.verdict_facts import WaitKind
from hangbisect.diagnosis.causes import catalogue
from hangbisect.toggles.table import toggle
from hangbisect.trials.isolation_plan import OWN_CACHES
from hangbisect.zoo import case_files
from hangbisect.zoo.case_files import BadCase, CaseFile

from ..examples import for_each

CASES = case_files.load_all_cases()

each = for_each(CASES, lambda kept: kept.case.id)


def test_there_are_enough_cases_and_every_id_is_there_once() -> None:
    ids = [kept.case.id for kept in CASES]
    assert len(ids) >= 60
    assert len(set(ids)) == len(ids)


@each
def test_a_case_is_called_as_its_file_is(kept: CaseFile) -> None:
    assert kept.file.stem.startswith(f"{kept.case.id}_")
    assert kept.story


@each
def test_a_truth_names_only_what_there_is(kept: CaseFile) -> None:
    truth, table = kept.case.truth, find_pipeline(kept.case.pipeline).table
    steps = {row.name for row in table}
    phases = [phase for row in table for phase in row.phases]
    assert truth.checkpoint in (None, *steps)
    components = {row.component for row in table} | {phase.component for phase in phases}
    assert set(truth.component) <= components
    assert set(truth.waits_for) <= set(get_args(WaitKind))
    assert truth.slow in (None, *steps, *(phase.name for phase in phases))


@each
def test_the_cause_is_one_of_the_catalogue(kept: CaseFile) -> None:
    unknown = [
        c for c in kept.case.truth.cause if c != "unknown" and not catalogue.find_known_cause(c)
    ]
    assert unknown == []


@each
def test_what_avoids_it_are_toggles(kept: CaseFile) -> None:
    for together in kept.case.truth.avoids:
        for word in together.split():
            name, _, value = word.partition("=")
            if OWN_CACHES.get(name) == value:
                continue  # no toggle: tried where a lock in a cache is suspected
            entry = toggle(name).read_by(kept.case.pipeline)
            assert kept.case.pipeline in entry.pipelines
            assert entry.accepts != "choice" or value in entry.values


@each
def test_ranks_are_those_of_the_job_and_none_is_both(kept: CaseFile) -> None:
    case, truth = kept.case, kept.case.truth
    assert not set(truth.culprit) & set(truth.waiting)
    assert set(truth.waiting) <= set(range(max(case.ranks, 2)))
    assert truth.outcome != "hang" or truth.culprit or truth.checkpoint == "launcher"


@each
def test_functions_for_steps_are_there(kept: CaseFile) -> None:
    tree = ast.parse(kept.file.read_text("utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(kept.case.uses.values()) <= functions
    walked = find_pipeline(kept.case.pipeline)
    assert set(kept.case.uses) <= {*(row.name for row in walked.table), *walked.called}


@each
def test_what_it_needs_can_be_looked_for(kept: CaseFile) -> None:
    assert set(kept.case.needs) <= set(case_files.NEEDS)


@each
def test_ranks_can_import_it_fast(kept: CaseFile) -> None:
    tree = ast.parse(kept.file.read_text("utf-8"))
    heavy = {"torch", "pytorch_lightning", "transformers", "wandb", "numpy"}
    imported = {
        name.partition(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    }
    assert not imported & heavy


def test_cases_are_chosen_by_id_in_the_order_asked_for() -> None:
    assert [kept.case.id for kept in case_files.choose_cases(["I14", "i02"], CASES)] == [
        "I14",
        "I02",
    ]
    assert case_files.choose_cases([], CASES) == CASES


def test_an_id_that_there_is_not_gets_a_sentence() -> None:
    with pytest.raises(UsageError, match="'I144'; did you mean 'I14'"):
        case_files.choose_cases(["I144"], CASES)


def test_a_file_of_ones_own_is_a_case_too(tmp_path: Path) -> None:
    mine = tmp_path / "A1_mine.py"
    mine.write_text(CASES[0].file.read_text("utf-8"))
    (kept,) = case_files.choose_cases([str(mine)], CASES)
    assert kept.file == mine


@pytest.mark.parametrize("text", ["", "x = 1", "import no_such_module", "def ("])
def test_a_file_without_a_case_gets_a_sentence(tmp_path: Path, text: str) -> None:
    wrong = tmp_path / "A1_wrong.py"
    wrong.write_text(text)
    with pytest.raises(BadCase, match=r"A1_wrong\.py"):
        case_files.load_case(wrong)
