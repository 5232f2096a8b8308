"""What NCCL and its watchdog printed to files, as facts of the ranks of a job that stands still:
how many operations each has enqueued, which version it has, where it could not connect to, and what
it warns of.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from ..base.deadline import call_with_limit
from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.rank_facts import CollectiveLog, NcclFacts, RankFacts
from ..evidence.library_output import LibraryOutput, read_library_output
from ..evidence.nccl_lines import RankedLine, collect_nccl_facts, describe_nccl_lines
from ..evidence.watchdog_messages import make_watchdog_logs

LIMIT = 1.0  # seconds: the files may lie on a disk that does not answer


@dataclass(frozen=True)
class LibraryFacts:
    """Sentences for the verdict, and by rank what its libraries printed."""

    notes: tuple[str, ...] = ()
    logs: Mapping[RankId, CollectiveLog] = field(default_factory=dict)
    nccl: Mapping[RankId, NcclFacts] = field(default_factory=dict)


async def read_library_facts(
    ranks: Sequence[RankFacts],
    started: float,
    error_files: Mapping[RankId, str] | None = None,
    limit: float = LIMIT,
) -> LibraryFacts:
    """Return what the libraries of these ranks, all of this machine, printed since the job began
    (`started`, monotonic clock), as far as that is read within `limit` seconds. Never raises.
    """
    since = time.time() - (time.monotonic() - started)
    found = LibraryOutput()
    with contextlib.suppress(TimeoutError, RuntimeError):
        await call_with_limit(
            read_library_output,
            ranks,
            since,
            found,
            error_files,
            limit=limit,
            key="library output",
        )
    lines = list(found.nccl_lines)
    return LibraryFacts(
        tuple(describe_nccl_lines(_drop_large_communicators(lines, len(ranks)))),
        make_watchdog_logs({rank: tuple(said) for rank, said in dict(found.messages).items()}),
        collect_nccl_facts(lines),
    )


def _drop_large_communicators(lines: Sequence[RankedLine], most: int) -> list[RankedLine]:
    """Return the lines without those of communicators with more ranks than were read: of the others
    nothing is known, and nothing is to be said.
    """
    return [(one, rank) for one, rank in lines if one.making is None or one.making[1] <= most]


def add_library_facts(ranks: Sequence[RankFacts], found: LibraryFacts) -> list[RankFacts]:
    """Return the ranks with what their libraries printed; warnings stand before what else a rank
    wrote, unless they are among it.
    """
    return [_add_to_rank(facts, found) for facts in ranks]


def _add_to_rank(facts: RankFacts, found: LibraryFacts) -> RankFacts:
    log, nccl = found.logs.get(facts.rank), found.nccl.get(facts.rank, facts.nccl)
    told = [
        f"NCCL WARN {text}"
        for text in nccl.warnings
        if not any(text in line for line in facts.output)
    ]
    return replace(
        facts,
        nccl=nccl,
        output=(*told, *facts.output),
        collectives=facts.collectives if log is None else (*facts.collectives, log),
    )
