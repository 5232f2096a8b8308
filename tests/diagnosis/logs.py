"""Logs of collectives, made up: programs that ranks run, and where they hang."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts


@dataclass(frozen=True)
class Call:
    """One call in a program: "all_reduce" at "train.py:10"."""

    kind: str
    site: str
    shape: str = ""
    group: str = "0"
    condition: str = ""
    between: str = ""
    path: tuple[str, ...] = ()
    origin: str = ""


def ran(programs: Sequence[Sequence[Call]], window: int | None = None) -> list[RankFacts]:
    """Run the programs side by side as c10d does (operations of one number meet) until they hang,
    and return the ranks with what their rings hold then.
    """
    length = max(map(len, programs))
    hung = next((n for n in range(length) if not _meet([_at(p, n) for p in programs])), length)
    return [rank(number, program, hung, window) for number, program in enumerate(programs)]


def hangs(programs: Sequence[Sequence[Call]]) -> int | None:
    """Return the index at which the programs hang, None if they come to an end."""
    length = max(map(len, programs))
    return next((n for n in range(length) if not _meet([_at(p, n) for p in programs])), None)


def _at(program: Sequence[Call], n: int) -> Call | None:
    return program[n] if n < len(program) else None


def _meet(calls: Sequence[Call | None]) -> bool:
    return len({None if c is None else (c.kind, c.shape) for c in calls}) == 1


def rank(
    number: int, program: Sequence[Call], hung: int, window: int | None = None, world: int = 0
) -> RankFacts:
    """Return a rank that has done `hung` calls of its program and waits in the next."""
    calls = list(enumerate(program[: hung + 1]))
    numbers: dict[str, int] = {}
    operations = []
    for n, call in calls:
        numbers[call.group] = numbers.get(call.group, 0) + 1
        operations.append(
            Collective(
                group=call.group,
                kind=call.kind,
                number=numbers[call.group],
                site=call.site,
                shape=call.shape,
                at=100.0 + n + number * 1e-3,
                done=n < hung,
                between=call.between,
                condition=call.condition,
                path=call.path,
                origin=call.origin,
            )
        )
    kept = operations if window is None else operations[-window:]
    members = {name: tuple(range(world)) for name in numbers} if world else {}
    log = CollectiveLog("ring", tuple(kept), members)
    return RankFacts(rank=number, pid=100 + number, collectives=(log,))
