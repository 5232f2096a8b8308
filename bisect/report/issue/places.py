"""Where the ranks were when the verdict was made: those that did the same in one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...facts import JobFacts, RankFacts
from ..people_lines import how_it_ended
from ..terminal import short_stack
from ..words import brief, counted
from .plain import code, table

MOST_ROWS = 16
_MOST_HOSTS = 3


def places_table(verdict: Mapping[str, Any], ranks: Sequence[RankFacts], job: JobFacts) -> str:
    """Return the table, "" where nobody was looked at."""
    groups: dict[tuple[str, str], list[RankFacts]] = {}
    for one in ranks:
        groups.setdefault((_role(verdict, one), _does(one, job)), []).append(one)
    if not groups:
        return ""
    rows = [
        [brief(r.rank for r in them), role, code(does), _hosts(them)]
        for (role, does), them in sorted(
            groups.items(), key=lambda item: _order(item[0][0], item[1])
        )
    ]
    left = len(rows) - MOST_ROWS
    more = f"\n\n{counted(left, 'more row')}: see all stacks below." if left > 0 else ""
    return table(["ranks", "", "in", "host"], rows[:MOST_ROWS]) + more


_ROLES = {
    "culprit": "**to blame**",
    "never_started": "never started",
    "dead": "ended",
    "stuck": "stuck",
    "waiting": "waits, not at fault",
}


def _role(verdict: Mapping[str, Any], one: RankFacts) -> str:
    found = verdict.get("ranks", {})
    return next((words for name, words in _ROLES.items() if one.rank in found.get(name, ())), "")


def _order(role: str, them: Sequence[RankFacts]) -> tuple[int, int]:
    known = list(_ROLES.values())
    return (known.index(role) if role in known else len(known), them[0].rank)


def _does(one: RankFacts, job: JobFacts) -> str:
    """Return the innermost frames that matter; of one that left how it ended."""
    if not one.alive or one.left:
        return how_it_ended(one)
    if one.held:
        return "our barrier"
    return short_stack(one, job) or "no stack"


def _hosts(them: Sequence[RankFacts]) -> str:
    hosts = list(dict.fromkeys(one.host for one in them if one.host))
    told = ", ".join(code(host, 60) for host in hosts[:_MOST_HOSTS])
    if len(them) == 1 and them[0].pid is not None:
        told += f" pid {them[0].pid}"
    return told + (f" and {len(hosts) - _MOST_HOSTS} more" if len(hosts) > _MOST_HOSTS else "")
