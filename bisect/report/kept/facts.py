"""evidence.json as the facts that it was written from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...facts import RankFacts
from .fields import objects
from .readers import reader
from .run import KeptRun


def rank_facts(run: KeptRun) -> tuple[RankFacts, ...]:
    """Return what was known of each rank of all nodes when the verdict was made, by rank; without
    those of which the file says what cannot be.
    """
    told = [data for part in run.everywhere for data in objects(part.evidence, "ranks")]
    found = [one for data in told if (one := _facts(data))]
    return tuple(sorted(found, key=lambda one: one.rank))


def _facts(data: Any) -> RankFacts | None:
    try:
        found: RankFacts = reader(RankFacts)(data)
    except (TypeError, ValueError, OverflowError):
        return None
    return replace(found, looks=tuple(sorted(found.looks, key=lambda look: look.at)))
