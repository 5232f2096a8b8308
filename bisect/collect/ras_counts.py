"""What NCCL's RAS service says of a job that is looked at: asked where one of its ranks listens,
and once more a little later where its counts differ: those that stand are facts, those that grow
are the job at work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from ..base.deadline import aside
from ..base.facts import CollectiveLog, RankFacts, RankId
from ..base.lazy_dataclass import dataclass
from ..diagnosis.rank_waits import claimed_world_size
from ..evidence.nccl_ras import (
    LIMIT,
    ask_service,
    describe_status,
    find_moving,
    find_service,
    make_ras_logs,
)
from ..evidence.ras_answers import RasAnswer, parse_status

PAUSE = 1.0  # seconds from an answer whose counts differ to the next question


@dataclass(frozen=True)
class RasFacts:
    """Sentences for the verdict, and where they differ how many operations each rank has begun."""

    notes: tuple[str, ...] = ()
    logs: Mapping[RankId, CollectiveLog] = field(default_factory=dict)


async def ask_ras(
    ranks: Sequence[RankFacts], world: int = 0, limit: float = LIMIT, pause: float = PAUSE
) -> RasFacts:
    """Return what the RAS service of these ranks says, nothing if none of them listens. `world`: at
    least so many ranks has the job. Never raises. Takes two times `limit` and `pause` seconds at
    most.
    """
    address = find_service(ranks)
    if address is None:
        return RasFacts()
    answer = await _ask(address, limit)
    if answer is None:
        return RasFacts((f"NCCL RAS: {address[0]}:{address[1]} gave no answer that can be read",))
    world = max(world, claimed_world_size(ranks), len(ranks))
    logs = make_ras_logs(answer, ranks, world=world)
    moving: frozenset[str] = frozenset()
    if logs:
        await asyncio.sleep(pause)
        later = await _ask(address, limit)
        if later is None:
            return RasFacts(describe_status(answer, _pids_of(ranks)))
        moving = find_moving(answer, later)
        answer = later
        logs = make_ras_logs(answer, ranks, moving, world)
    standing = tuple(one for one in answer.communicators if one.name not in moving)
    notes = describe_status(replace(answer, communicators=standing), _pids_of(ranks))
    grows = (f"communicator {name} begins operations meanwhile" for name in sorted(moving))
    return RasFacts((*notes, *(f"NCCL RAS: {words}" for words in grows)), logs)


def add_ras_logs(ranks: Sequence[RankFacts], found: RasFacts) -> list[RankFacts]:
    """Return the ranks with what was counted of them."""
    return [
        replace(facts, collectives=(*facts.collectives, log))
        if (log := found.logs.get(facts.rank)) is not None
        else facts
        for facts in ranks
    ]


async def _ask(address: tuple[str, int], limit: float) -> RasAnswer | None:
    try:
        data = await aside(ask_service, *address, limit, limit=limit + 0.5, key="NCCL RAS")
    except (OSError, TimeoutError, ValueError):
        return None
    return parse_status(data)


def _pids_of(ranks: Sequence[RankFacts]) -> frozenset[int]:
    return frozenset(facts.pid for facts in ranks if facts.pid is not None)
