"""What a run was made of: versions, what differs between its ranks, its environment."""

from __future__ import annotations

from typing import Any

from ..kept.differences import Difference, differences
from ..kept.fields import objects
from ..kept.run import KeptRun
from ..words import brief, counted
from .length import Section
from .plain import code, fenced, folded, table

_MOST_VALUES = 12  # of one thing that differs
_MOST_DIFFERENCES = 60
_MOST_VARIABLES = 150


def versions(run: KeptRun) -> list[Section]:
    """Return versions, and what machine it was."""
    found = {**(run.environment or {}).get("versions", {}), **run.verdict.get("versions", {})}
    told = [code(f"{name} {version}", 100) for name, version in list(found.items())[:60]]
    told += _machine(run)
    return [Section(f"### Versions\n\n{', '.join(told)}", 86, "versions")] if told else []


def _machine(run: KeptRun) -> list[str]:
    environment: Any = run.environment or {}
    told = [code(f"Linux {kernel}", 100) for kernel in (environment.get("kernel"),) if kernel]
    if environment.get("processors"):
        told.append(counted(environment["processors"], "core"))
    if run.world_size:
        told.append(counted(run.world_size, "rank"))
    machine = (run.evidence or {}).get("machine")
    names = [str(gpu.get("name")) for gpu in objects(machine, "gpus")]
    told += [f"{names.count(name)} × {code(name, 60)}" for name in dict.fromkeys(names[:64])]  # noqa: RUF001  # a sign that is read at once
    return told


def differing(run: KeptRun) -> list[Section]:
    """Return what differs between ranks."""
    if run.world_size < 2 and len((run.environment or {}).get("ranks", {})) < 2:
        return []
    found = differences(run)
    title = "### What differs between the ranks"
    if not found:
        nothing = "Nothing: hosts, versions, Python and the variables that matter are the same."
        return [Section(f"{title}\n\n{nothing}", 84, "what differs")]
    rows = [row for one in found[:_MOST_DIFFERENCES] for row in _rows(one)]
    left = len(found) - _MOST_DIFFERENCES
    more = f"\n\n{counted(left, 'more thing')} differ." if left > 0 else ""
    text = f"{title}\n\n{table(['what', 'value', 'ranks'], rows)}{more}"
    names = ", ".join(code(one.name, 60) for one in found[:20])
    return [Section(text, 84, "the values of what differs between ranks", f"{title}\n\n{names}")]


def _rows(one: Difference) -> list[list[str]]:
    values = list(one.values.items())
    rows = [
        [code(one.name, 80) if not number else "", code(value, 200) or "not set", brief(ranks)]
        for number, (value, ranks) in enumerate(values[:_MOST_VALUES])
    ]
    rest = values[_MOST_VALUES:]
    if rest:
        ranks = [rank for _, them in rest for rank in them]
        rows.append(["", f"{counted(len(rest), 'more value')}", brief(ranks)])
    return rows


def environment(run: KeptRun) -> list[Section]:
    """Return the variables that matter of the rank that it is about, folded."""
    ranks: Any = (run.environment or {}).get("ranks", {})
    culprits = [str(rank) for rank in run.verdict.get("ranks", {}).get("culprit", ())]
    rank = next((one for one in (*culprits, *ranks) if one in ranks), None)
    if rank is None or not ranks[rank]:
        return []
    lines = [f"{name}={value}" for name, value in sorted(ranks[rank].items())]
    left = len(lines) - _MOST_VARIABLES
    more = [f"({counted(left, 'more variable')} in environment.json)"] if left > 0 else []
    summary = f"The environment of rank {rank}, as far as it matters"
    text = folded(summary, fenced([*lines[:_MOST_VARIABLES], *more]))
    return [Section(text, 45, "the environment (environment.json)")]


def unread(run: KeptRun) -> list[Section]:
    """Return what could not be read of the run folder."""
    if not run.missing:
        return []
    lines = "\n".join(f"- {code(sentence)}" for sentence in run.missing[:20])
    return [Section(f"### Not in this report\n\n{lines}", 75, "what could not be read")]
