"""What a verdict says to try."""

from __future__ import annotations

from hangbisect.diagnosis.failure_verdict import list_remedies


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
