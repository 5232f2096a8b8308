"""What torch's flight recorder has of the operations of ranks that stand still, asked over its
pipe, or from the server that the job has started for itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

from ..base.deadline import call_with_limit
from ..base.identity import RankId
from ..base.rank_facts import CollectiveLog, RankFacts
from ..evidence.debug_pages import ask_debug_pages, find_debug_server
from ..evidence.recorder_pipe import ask_recorders

LIMIT = 4.0  # seconds: a rank looks into its pipe once a second, and then writes its stacks as well


async def add_recorder_dumps(ranks: Sequence[RankFacts], limit: float = LIMIT) -> list[RankFacts]:
    """Return the ranks with what their recorders wrote when asked. Takes `limit` seconds and a
    little where a rank that has such a pipe does not answer, and as much where a server does not;
    no time without. Never raises.
    """
    found: dict[RankId, CollectiveLog] = {}
    with contextlib.suppress(TimeoutError, RuntimeError):
        await call_with_limit(
            ask_recorders, ranks, found, limit, limit=limit + 0.5, key="recorder pipes"
        )
    logs = dict(found)
    if server := find_debug_server([facts for facts in ranks if facts.alive]):
        logs = {**await _ask_server(*server, limit), **logs}
    return [
        replace(facts, collectives=(*facts.collectives, logs[facts.rank]))
        if facts.rank in logs
        else facts
        for facts in ranks
    ]


async def _ask_server(host: str, port: int, limit: float) -> dict[RankId, CollectiveLog]:
    offset = time.monotonic() - time.time()
    try:
        logs, _ = await call_with_limit(
            ask_debug_pages, host, port, limit, offset, limit=limit + 0.5, key="debug pages"
        )
    except (TimeoutError, RuntimeError):
        return {}
    return dict(logs.items())
