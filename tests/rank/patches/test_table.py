"""The table of steered calls, beside the table of toggles."""

from __future__ import annotations

from hangbisect.rank.call_changes import change_nothing
from hangbisect.rank.patches import PATCHES
from hangbisect.toggles.table import TOGGLES


def test_what_is_told_or_changed_has_a_call_and_nothing_else() -> None:
    wanted = {entry.name for entry in TOGGLES if entry.reports_itself or entry.in_code}
    assert {row.toggle for row in PATCHES} == wanted


def test_what_is_changed_in_the_code_is_changed_by_each_of_its_calls() -> None:
    changed = {row.toggle for row in PATCHES if row.change is not change_nothing}
    assert changed == {entry.name for entry in TOGGLES if entry.in_code}
    assert not changed & {row.toggle for row in PATCHES if row.change is change_nothing}


def test_a_call_stands_once_for_a_toggle() -> None:
    pairs = [(row.toggle, row.where) for row in PATCHES]
    assert len(set(pairs)) == len(pairs)
    assert all(row.module and (row.attribute or row.change is change_nothing) for row in PATCHES)
