"""Who of several candidates is to blame."""

from __future__ import annotations

from hangbisect.base.identity import RankId
from hangbisect.diagnosis.blame import find_least_advanced


def test_the_least_advanced_are_all_that_came_equally_far() -> None:
    progress: dict[RankId, tuple[int, int]] = {0: (8, 1), 1: (8, 0), 2: (8, 0), 3: (9, 0)}
    assert find_least_advanced([0, 1, 2, 3], progress) == (1, 2)
    assert find_least_advanced([], progress) == ()
