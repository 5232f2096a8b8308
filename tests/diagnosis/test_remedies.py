"""What a verdict says to try."""

from __future__ import annotations

import pytest
from hangbisect.diagnosis.failure_verdict import list_remedies
from hangbisect.diagnosis.verdict import judge_job

from .made_up import job, look, rank


def test_the_argument_is_added_or_replaced_in_either_spelling() -> None:
    for command in (["x", "--wandb", "logger"], ["x", "--wandb=logger"], ["x"]):
        assert list_remedies("wandb", command)[0].command == "x --wandb offline"
    assert list_remedies("data", ["x", "--num_workers=4"])[0].command == "x --num-workers 0"


def test_giving_a_component_up_comes_last() -> None:
    assert [t.value for t in list_remedies("wandb", ["x"])] == ["offline", "rank0", "off"]


def test_a_component_without_toggles_has_nothing_to_try() -> None:
    assert list_remedies("interpreter", ["x"]) == ()
    assert list_remedies(None, ["x"]) == ()


def test_the_safest_value_leaves_nothing_to_try() -> None:
    assert list_remedies("wandb", ["x", "--wandb", "off"]) == ()


TRAIN = ("torchrun", "--nproc_per_node=2", "train.py")


def test_what_changes_a_call_of_a_library_is_no_advice_where_nobody_uses_that() -> None:
    def names(seen: set[str] | None) -> set[str]:
        return {one.toggle for one in list_remedies("strategy", TRAIN, (), False, seen)}

    assert "strategy" not in names({"torch"})
    for library in ("lightning", "pytorch_lightning", "lightning_fabric"):
        assert "strategy" in names({"torch", library})
    assert "strategy" in names(None)  # it is not known what it uses


@pytest.mark.parametrize("uses", [True, False])
def test_a_library_shows_in_the_stacks_or_in_what_ranks_tell(uses: bool) -> None:
    fit = ("Trainer.fit SP/lightning/pytorch/trainer/trainer.py:584",) if uses else ()
    frames = ("broadcast SP/torch/distributed/distributed_c10d.py:2500", *fit, "<module> t.py:9")
    for more in ({}, {"lightning": "2.6"}):
        facts = job(pipeline="", command=TRAIN, versions=more)
        ranks = [rank(n, look(*frames, pid=100 + n)) for n in (0, 1)]
        found = judge_job(facts, ranks)
        assert found.component == "strategy"
        assert ("strategy" in {one.toggle for one in found.try_}) == (uses or bool(more))
