"""Probes describe a hang: with which of their values it hangs, and with which not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hangbisect.bisection.asking import Ask, Choice
from hangbisect.bisection.found import Described
from hangbisect.bisection.probing import described, told
from hangbisect.bisection.record import driven
from hangbisect.facts import Result

RANKS = Choice("world_size", ("4", "2", "1"))


def asked(results: Mapping[str, Result]) -> tuple[Described, list[str]]:
    """Return what the probe says if the job ends so with so many ranks, and what it tried."""
    tried: list[str] = []

    def answer(ask: Ask) -> Result:
        assert set(ask.setting) == {"world_size"}
        tried.append(ask.setting["world_size"])
        return results[tried[-1]]

    found = driven(described([RANKS]), answer)
    assert found is not None
    return found[0], tried


@pytest.mark.parametrize(
    ("results", "said", "tried"),
    [
        (
            {"4": "hang", "2": "hang", "1": "pass"},
            "hangs with world_size=2, not with world_size=1",
            ["1", "4", "2"],
        ),
        ({"4": "pass", "1": "pass"}, "hangs with world_size=8, not with world_size=4", ["1", "4"]),
        ({"1": "hang"}, "hangs with world_size=1 as well", ["1"]),
        ({"1": "other"}, None, ["1"]),
        (
            {"4": "hang", "2": "other", "1": "pass"},
            "hangs with world_size=4, not with world_size=1",
            ["1", "4", "2"],
        ),
    ],
)
def test_it_says_where_the_hang_ends(
    results: Mapping[str, Result], said: str | None, tried: list[str]
) -> None:
    found, settings = asked(results)
    assert told(found, "8") == said
    assert settings == tried


def test_a_value_that_is_not_known_is_said_so() -> None:
    found, _ = asked({"4": "pass", "1": "pass"})
    assert told(found, None) == "hangs with the value as you run it, not with world_size=4"
