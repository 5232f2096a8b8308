"""The verdict on what dumps show. Pure.

The same diagnosis as of a job that was watched, with what a dump does not tell left out: no
checkpoint but that of the call, no time, no system call but the one that the stack ends in. That
the job hangs is what whoever made the dumps saw: one dump of each cannot tell slow from hung.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..attach.checkpoint import place_of_call
from ..diagnosis.collectives import mismatch
from ..diagnosis.distributed import group_call, group_wait
from ..diagnosis.verdict import judged
from ..diagnosis.view import seen
from ..facts import Ended, Frame, JobFacts, RankFacts, Ranks, Verdict
from .together import Merged

_FOR_OTHERS = ("rank", "absent_rank", "collective", "store")
_NOTHING: dict[str, Any] = {"waits_for": None, "cause": None, "candidates": (), "chain": ()}
_SOME = ("python",)  # the diagnosis works out what to change about a command: there is none


def verdict_of(merged: Merged) -> Verdict:
    """Return the verdict as far as the dumps carry it; `ok` if every rank went on meanwhile."""
    ranks = tuple(one.facts for one in merged.ranks)
    ended: Ended = "done" if all(facts.moved for facts in ranks) else "still"
    if any(facts.left for facts in ranks):
        ended = "crash"
    job = JobFacts(
        ended=ended,
        pipeline="",
        command=_SOME,
        attempt=0,
        # Where a rank has no number, nobody can say which numbers are not there.
        world_size=merged.world_size if merged.unseen else 0,
        local_ranks=tuple(facts.rank for facts in ranks),
        table=(),
        now=0.0,
        started=0.0,
        package="",
        notes=merged.notes,
    )
    verdict, _ = judged(job, ranks)
    if verdict.outcome == "hang":
        verdict = _of_what_is_there(verdict, merged, ranks)
    if verdict.outcome == "hang":
        verdict = replace(verdict, checkpoint=place_of_call(verdict.call, _frames(verdict, ranks)))
    # What to change about a command that nobody knows cannot be said.
    return replace(verdict, command=(), try_=(), world_size=merged.world_size)


def _frames(verdict: Verdict, ranks: Sequence[RankFacts]) -> tuple[Frame, ...]:
    """Return the stack of the first culprit; of nobody's fault none."""
    first = next((facts for facts in ranks if facts.rank in verdict.ranks.culprit), None)
    main = first.looks[-1].main if first is not None and first.looks else None
    return main.frames if main is not None else ()


def parted(merged: Merged) -> str:
    """Return in a sentence where the ranks' collectives part, "" if they do not, or have no log."""
    found = mismatch([one.facts for one in merged.ranks])
    return found.sentence if found is not None else ""


def _of_what_is_there(verdict: Verdict, merged: Merged, ranks: Sequence[RankFacts]) -> Verdict:
    """Return `verdict` without what it says of ranks that no dump shows: they may have come, and
    whose fault it is may stand in their dumps.
    """
    if (len(ranks) == 1 and _waits_for_others(verdict, ranks[0])) or _all_make_a_group(ranks):
        nobody = Ranks(waiting=tuple(sorted(facts.rank for facts in ranks)))
        return replace(verdict, ranks=nobody, where=(), **_NOTHING)
    if merged.unseen and not verdict.ranks.culprit:
        return replace(verdict, **_NOTHING)
    if verdict.waits_for is not None and verdict.waits_for.kind == "unknown":
        return replace(verdict, waits_for=None)
    return verdict


def _waits_for_others(verdict: Verdict, facts: RankFacts) -> bool:
    view = seen(facts.looks)
    if view is not None and group_wait(view) is not None:
        return True
    return verdict.waits_for is not None and verdict.waits_for.kind in _FOR_OTHERS


def _all_make_a_group(ranks: Sequence[RankFacts]) -> bool:
    """Return whether all wait in the making of the same group. That waits for nobody who is there:
    others are counted on, or the ranks look for one another in different places.
    """
    views = [view for facts in ranks if (view := seen(facts.looks)) is not None]
    calls = {group_call(view) for view in views}
    makes = all(group_wait(view) == "construction" for view in views)
    return len(views) == len(ranks) and len(calls) == 1 and makes
