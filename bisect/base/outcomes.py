"""Which of several verdicts on one job is shown: a node writes one each, and an attempt each.

The same in all that read a run folder: a matrix, a search, `show` and the reports.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .verdict_facts import Verdict

# Outcomes of a job's parts, the worst last.
BADNESS = (
    "ok",
    "interrupted",
    "slow",
    "silent",
    "crash",
    "hang",
)
STANDS_STILL = ("hang", "silent")  # outcomes of a job in which nothing moves
CUT_SHORT = (*STANDS_STILL, "slow")  # outcomes with which a job that lives is ended
# Statuses of processes that a person, or their launcher, has told to end; the last one is Python's
# own after an interruption that a script has let through (sys.exit(130)).
ENDED_ON_REQUEST = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, 128 + signal.SIGINT)
# The folder of a part, inside that of the job or of a node.
_PART = re.compile(r"node-[\w.-]{1,64}|attempt-\d{1,6}|job-\d{1,6}", re.ASCII)


def is_part(name: str) -> bool:
    """Return whether a folder of that name holds what a node, or an attempt, has written."""
    return _PART.fullmatch(name) is not None


def shown(verdicts: Sequence[Verdict]) -> int:
    """Return which of `verdicts` is to be shown: of the last attempt's the worst, of those one that
    names a culprit, of those the earliest after its start.
    """
    last = max(verdict.attempt for verdict in verdicts)

    def order(number: int) -> tuple[bool, int, bool, float]:
        verdict = verdicts[number]
        badness = BADNESS.index(verdict.outcome)
        names_one = bool(verdict.ranks.culprit)
        return verdict.attempt == last, badness, names_one, -verdict.seconds.total

    return max(range(len(verdicts)), key=order)


def of_all(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict that is shown; where all parts of an attempt ended well it speaks for the
    ranks of them all.
    """
    chosen = verdicts[shown(verdicts)]
    if chosen.outcome != "ok":
        return chosen
    same = [one for one in verdicts if one.attempt == chosen.attempt]
    return replace(chosen, seen_ranks=tuple(sorted({r for one in same for r in one.seen_ranks})))
