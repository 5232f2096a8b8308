"""Probes describe a hang: with which of their values it hangs, and with which not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hangbisect.base.verdict_facts import Result
from hangbisect.search.search import drive_search, probe_hang
from hangbisect.search.trial_results import Ask, Choice, ProbeResult

RANKS = Choice("world_size", ("4", "2", "1"))


def asked(results: Mapping[str, Result]) -> tuple[ProbeResult | None, list[str]]:
    """Return what the probe says if the job ends so with so many ranks, and what it tried."""
    tried: list[str] = []

    def answer(ask: Ask) -> Result:
        assert set(ask.setting) == {"world_size"}
        tried.append(ask.setting["world_size"])
        return results[tried[-1]]

    return drive_search(probe_hang(RANKS), answer), tried


@pytest.mark.parametrize(
    ("results", "said", "tried"),
    [
        (
            {"4": "hang", "2": "hang", "1": "pass"},
            ProbeResult("world_size", "2", "1", "pass"),
            ["1", "4", "2"],
        ),
        ({"4": "pass", "1": "pass"}, ProbeResult("world_size", None, "4", "pass"), ["1", "4"]),
        ({"1": "hang"}, ProbeResult("world_size", "1", None, "hang"), ["1"]),
        ({"1": "other"}, ProbeResult("world_size", None, None, "other"), ["1"]),
        (
            {"4": "hang", "2": "other", "1": "pass"},
            ProbeResult("world_size", "4", "1", "pass"),
            ["1", "4", "2"],
        ),
    ],
)
def test_it_says_where_the_hang_ends(
    results: Mapping[str, Result], said: ProbeResult, tried: list[str]
) -> None:
    assert asked(results) == (said, tried)
