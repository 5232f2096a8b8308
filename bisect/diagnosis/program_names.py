"""By which names a verdict calls the Python programs that a job has started besides its ranks: the
kernel calls all of them "python", and where a trainer, a server and a data service run side by side
that says nothing. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..base.command_words import program, starts_for_multiprocessing
from ..base.process_facts import Look
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Cause, Edge, Verdict, Wait

_PYTHON = re.compile(r"\bpython[\d.]* \((\d+)\)")


def name_programs(verdict: Verdict, ranks: Sequence[RankFacts]) -> Verdict:
    """Return a verdict in whose words "python (4711)" is "python service.py (4711)" where that
    process runs another script than its rank.
    """
    names = _name_processes(ranks)
    if not names:
        return verdict
    return replace(
        verdict,
        waits_for=_name_in_wait(verdict.waits_for, names),
        where=tuple(
            replace(one, waits_for=_name_in_wait(one.waits_for, names)) for one in verdict.where
        ),
        chain=tuple(_name_in_edge(edge, names) for edge in verdict.chain),
        cause=_name_in_cause(verdict.cause, names) if verdict.cause is not None else None,
    )


def _name_processes(ranks: Sequence[RankFacts]) -> dict[int, str]:
    """Return by pid what such a process is called; none whose pid means two things on two hosts."""
    found: dict[int, set[str]] = {}
    for facts in ranks:
        own = _read_script(facts.looks[-1]) if facts.looks else ""
        for look in (looks[-1] for looks in facts.children if looks):
            script = _read_script(look)
            other = script if script != own else ""
            found.setdefault(look.pid, set()).add(f"{look.name} {other}" if other else "")
    single = {pid: next(iter(names)) for pid, names in found.items() if len(names) == 1}
    return {pid: name for pid, name in single.items() if name}


def _read_script(look: Look) -> str:
    """Return the file name of the script that a Python runs, "" where it runs none."""
    words = look.command
    if not look.name.startswith("python") or starts_for_multiprocessing(words):
        return ""
    at = program(words)
    return words[at].rpartition("/")[2] if at is not None else ""


def _put_names(text: str, names: Mapping[int, str]) -> str:
    def name(found: re.Match[str]) -> str:
        known = names.get(int(found[1]))
        return f"{known} ({found[1]})" if known else found[0]

    return _PYTHON.sub(name, text)


def _name_in_wait(wait: Wait | None, names: Mapping[int, str]) -> Wait | None:
    if wait is None:
        return None
    is_python = wait.process is not None and wait.process.startswith("python")
    called = names.get(wait.pid or 0, wait.process) if is_python else wait.process
    return replace(wait, process=called, detail=_put_names(wait.detail, names))


def _name_in_edge(edge: Edge, names: Mapping[int, str]) -> Edge:
    return replace(edge, evidence=_put_names(edge.evidence, names))


def _name_in_cause(cause: Cause, names: Mapping[int, str]) -> Cause:
    return replace(
        cause,
        why=_put_names(cause.why, names),
        matched=tuple(_put_names(text, names) for text in cause.matched),
        avoid=tuple(_put_names(text, names) for text in cause.avoid),
    )
