"""What the job's own source says of where its ranks stand, and what they printed last: asked where
no rank speaks of itself, by attach and by the watch from outside.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace

from ..base.deadline import call_with_limit
from ..base.identity import RankId
from ..base.rank_facts import RankFacts
from ..evidence.lock_and_log_files import PrintingRank, read_last_lines, read_printed_lines
from ..evidence.locks_in_source import add_locks_of_others
from ..evidence.source_code import add_source_code

OUTPUT_LIMIT = 0.5  # seconds for what ranks printed: it may lie on a disk that does not answer
_SOURCE_LIMIT = 2.0  # the same, for the job's source: it is parsed, on a busy machine for longer


async def add_source_facts(ranks: Sequence[RankFacts]) -> list[RankFacts]:
    """Return the ranks with what the job's own source says of where they are; those that are done
    in time.
    """
    found: dict[RankId, RankFacts] = {}
    with contextlib.suppress(TimeoutError):
        await call_with_limit(
            _read_source_code, ranks, found, limit=_SOURCE_LIMIT, key="source code"
        )
    return [found.get(facts.rank, facts) for facts in ranks]


def _read_source_code(ranks: Sequence[RankFacts], found: dict[RankId, RankFacts]) -> None:
    for facts in ranks:
        found[facts.rank] = add_source_code(facts)
    for facts in add_locks_of_others(list(found.values())):
        found[facts.rank] = facts


async def add_printed_lines(ranks: Sequence[RankFacts]) -> list[RankFacts]:
    """Return the ranks with the last lines that each printed, where they go to a file of its own,
    and when the last one came. In a file to which our own output goes as well, ours may be last.
    """

    def read() -> dict[RankId, tuple[tuple[str, ...], float | None]]:
        pids = {facts.rank: facts.pid for facts in ranks if facts.looks}
        printers = [PrintingRank(rank, pid) for rank, pid in pids.items()]
        return {
            rank: (lines, _age_of_output(pids[rank]))
            for rank, lines in read_printed_lines(printers, beside=(1, 2)).items()
        }

    try:
        found = await call_with_limit(read, limit=OUTPUT_LIMIT, key="output")
    except TimeoutError:
        return list(ranks)
    now = time.monotonic()
    return [
        replace(
            facts,
            output=found[facts.rank][0],
            last_line=found[facts.rank][0][-1],
            last_line_at=None if (age := found[facts.rank][1]) is None else now - age,
        )
        if facts.rank in found
        else facts
        for facts in ranks
    ]


def _age_of_output(pid: int | None) -> float | None:
    """Return how long ago a process wrote to the file that its output goes to, in seconds."""
    times = []
    for number in (1, 2):
        path = f"/proc/{pid}/fd/{number}"
        try:
            if read_last_lines(path):
                times.append(os.stat(path).st_mtime)
        except OSError:
            continue
    return max(0.0, time.time() - max(times)) if times else None
