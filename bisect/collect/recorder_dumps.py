"""What torch's flight recorder has of the operations of ranks that stand still, asked over its
pipe.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from ..base.deadline import call_with_limit
from ..base.identity import RankId
from ..base.rank_facts import CollectiveLog, RankFacts
from ..evidence.recorder_pipe import ask_recorders

LIMIT = 4.0  # seconds: a rank looks into its pipe once a second, and then writes its stacks as well


async def add_recorder_dumps(ranks: Sequence[RankFacts], limit: float = LIMIT) -> list[RankFacts]:
    """Return the ranks with what their recorders wrote when asked. Takes `limit` seconds and a
    little where a rank that has such a pipe does not answer, no time without one. Never raises.
    """
    found: dict[RankId, CollectiveLog] = {}
    with contextlib.suppress(TimeoutError, RuntimeError):
        await call_with_limit(
            ask_recorders, ranks, found, limit, limit=limit + 0.5, key="recorder pipes"
        )
    logs = dict(found)
    return [
        replace(facts, collectives=(*facts.collectives, logs[facts.rank]))
        if facts.rank in logs
        else facts
        for facts in ranks
    ]
