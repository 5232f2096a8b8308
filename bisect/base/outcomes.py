"""Which of several verdicts on one job is shown: a node writes one each, and an attempt each.

The same in all that read a run folder: a matrix, a search, `show` and the reports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

BADNESS = (
    "ok",
    "interrupted",
    "slow",
    "crash",
    "hang",
)  # outcomes of a job's parts, the worst last
# The folder of a part, inside that of the job or of a node.
_PART = re.compile(r"node-[\w.-]{1,64}|attempt-\d{1,6}|job-\d{1,6}", re.ASCII)


def is_part(name: str) -> bool:
    """Return whether a folder of that name holds what a node, or an attempt, has written."""
    return _PART.fullmatch(name) is not None


def shown(verdicts: Sequence[Mapping[str, Any]]) -> int:
    """Return which of `verdicts` (as verdict.json has them) is to be shown: of the last attempt's
    the worst, of those one that names a culprit, of those the earliest after its start.
    """
    last = max(verdict["attempt"] for verdict in verdicts)

    def order(number: int) -> tuple[bool, int, bool, float]:
        verdict = verdicts[number]
        names_one = bool((verdict.get("ranks") or {}).get("culprit"))
        seconds = float((verdict.get("seconds") or {}).get("total") or 0.0)
        badness = BADNESS.index(verdict["outcome"])
        return verdict["attempt"] == last, badness, names_one, -seconds

    return max(range(len(verdicts)), key=order)


def of_all(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the verdict that is shown; where all parts of an attempt ended well it speaks for the
    ranks of them all.
    """
    chosen = verdicts[shown(verdicts)]
    if chosen["outcome"] != "ok":
        return dict(chosen)
    same = [one for one in verdicts if one["attempt"] == chosen["attempt"]]
    seen = sorted({rank for one in same for rank in one.get("seen_ranks", ())})
    return {**chosen, **({"seen_ranks": seen} if seen else {})}
