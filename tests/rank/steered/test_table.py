"""The table of steered calls, beside the table of toggles."""

from __future__ import annotations

from hangbisect.bisection.toggles import TOGGLES
from hangbisect.rank.steered.reached import reached
from hangbisect.rank.steered.table import TABLE


def test_what_is_told_or_changed_has_a_call_and_nothing_else() -> None:
    wanted = {entry.name for entry in TOGGLES if entry.told or entry.in_code}
    assert {row.toggle for row in TABLE} == wanted


def test_what_is_changed_in_the_code_is_changed_by_each_of_its_calls() -> None:
    changed = {row.toggle for row in TABLE if row.change is not reached}
    assert changed == {entry.name for entry in TOGGLES if entry.in_code}
    assert not changed & {row.toggle for row in TABLE if row.change is reached}


def test_a_call_stands_once_for_a_toggle() -> None:
    pairs = [(row.toggle, row.where) for row in TABLE]
    assert len(set(pairs)) == len(pairs)
    assert all(row.module and (row.attribute or row.change is reached) for row in TABLE)
