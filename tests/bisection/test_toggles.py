"""The table of toggles holds together."""

from __future__ import annotations

import pytest
from hangbisect.bisection.toggles import TOGGLES, Toggle, toggle
from hangbisect.pipelines import find

BY_NAME = pytest.mark.parametrize("entry", TOGGLES, ids=lambda entry: entry.name)


@BY_NAME
def test_the_default_is_one_of_the_values(entry: Toggle) -> None:
    assert entry.default is None or entry.default in entry.values


@BY_NAME
def test_what_it_sets_in_the_environment_belongs_to_its_values(entry: Toggle) -> None:
    assert {value for value, _, _ in entry.environment} <= set(entry.values)


@BY_NAME
def test_it_belongs_to_a_component_of_the_pipeline(entry: Toggle) -> None:
    table = find("startup").table
    components = {row.component for row in table}
    components |= {phase.component for row in table for phase in row.phases}
    assert entry.component in components


def test_names_and_flags_are_found_once() -> None:
    assert len({entry.name for entry in TOGGLES}) == len(TOGGLES)
    assert len({entry.flag for entry in TOGGLES}) == len(TOGGLES)
    assert all(toggle(entry.name) is entry for entry in TOGGLES)


def test_what_nearly_always_hides_a_hang_is_a_probe() -> None:
    probes = {entry.name for entry in TOGGLES if entry.kind == "probe"}
    assert probes == {"backend", "accelerator", "barriers"}
