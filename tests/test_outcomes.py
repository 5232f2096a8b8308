"""Which of several verdicts is shown."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hangbisect.base.outcomes import is_part, of_all, shown
from hangbisect.base.verdict_facts import Outcome, Ranks, Seconds, Verdict


def verdict(outcome: Outcome, *culprit: int, total: float = 9.0, **more: Any) -> Verdict:
    seconds = Seconds(total)
    return Verdict(outcome, "", (), 0, 4, None, Ranks(culprit), seconds=seconds, **more)


FINE = verdict("ok", seen_ranks=(0, 1))
ALSO_FINE = verdict("ok", seen_ranks=(2, 3))
WAITS = verdict("hang", total=5.0)
BLAMES = verdict("hang", 9, total=8.0)
BLAMES_LATER = verdict("hang", 4, total=30.0)
CRASHED = verdict("crash", 2, total=1.0)


def test_the_worst_is_shown_that_names_a_culprit_and_came_first() -> None:
    for found in permutations([FINE, WAITS, BLAMES, BLAMES_LATER, CRASHED]):
        assert found[shown(found)] is BLAMES


def test_only_the_last_attempt_counts() -> None:
    again = replace(FINE, attempt=1)
    assert of_all([BLAMES, again, CRASHED]) == again


def test_all_nodes_that_are_well_speak_together_for_their_ranks() -> None:
    assert of_all([FINE, ALSO_FINE]).seen_ranks == (0, 1, 2, 3)
    assert of_all([FINE, WAITS]) == WAITS


@pytest.mark.parametrize("name", ["node-1", "node-gpu07.cluster", "attempt-2"])
def test_nodes_and_attempts_have_folders_of_their_own(name: str) -> None:
    assert is_part(name)


@pytest.mark.parametrize("name", ["node-", "attempt-x", "node-../x", "stacks", "trial-1"])
def test_other_folders_are_no_parts(name: str) -> None:
    assert not is_part(name)
