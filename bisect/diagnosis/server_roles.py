"""What ranks and other processes of an inference server are called in words: "Worker_TP1 of
EngineCore_DP0" in place of "rank 1". Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..base.command_words import has_title, program, starts_for_multiprocessing
from ..base.identity import RankId, UnknownRank, name_rank
from ..base.process_facts import Look
from ..base.rank_facts import RankFacts
from ..base.server_processes import ServerProcess, find_server_process

_SINGLE = re.compile(r"\brank (?:\d+|\?(?: \([^)]*\))?)(?![\d-])")


def find_roles(ranks: Sequence[RankFacts]) -> dict[RankId, str]:
    """Return by rank what it is in its server; {} for ranks that are in none. One that died is
    called as the others are, by its number.
    """
    known = {one.rank: role for one in ranks if (role := _role_of(one.looks)) is not None}
    engines = _name_engines(ranks)
    found = {rank: role.name + _inside(role, engines) for rank, role in known.items()}
    alike = next((role for role in known.values() if role.is_rank), None)
    if alike is not None and all({k for k, _ in r.numbers} == {"TP"} for r in known.values()):
        for one in ranks:
            if isinstance(one.rank, int) and one.rank not in found:
                name = re.sub(r"\d+$", str(one.rank), alike.name)
                found[one.rank] = name + _inside(alike, engines)
    # Whose number nobody knows goes by its own title, or by its program where others run another.
    nameless = [one for one in ranks if isinstance(one.rank, UnknownRank) and one.rank not in found]
    programs = [_name_program(one.looks) for one in nameless]
    for one, its_program in zip(nameless, programs, strict=True):
        words = one.looks[-1].command if one.looks else ()
        if has_title(words):
            found[one.rank] = words[0]
        elif its_program and programs.count(its_program) == 1 and len(programs) > 1:
            found[one.rank] = its_program
    return found


def _name_program(looks: Sequence[Look]) -> str:
    words = looks[-1].command if looks else ()
    at = None if starts_for_multiprocessing(words) else program(words)
    return "" if at is None else words[at].rpartition("/")[2]


def _role_of(looks: Sequence[Look]) -> ServerProcess | None:
    roles = (find_server_process(look.command) for look in reversed(looks))
    return next((role for role in roles if role is not None), None)


def _name_engines(ranks: Sequence[RankFacts]) -> list[str]:
    roles = (_role_of(looks) for one in ranks for looks in one.children)
    names = (role.name for role in roles if role is not None and role.is_engine)
    return list(dict.fromkeys(names))


def _inside(role: ServerProcess, engines: Sequence[str]) -> str:
    return f" of {engines[0]}" if role.is_rank and len(engines) == 1 else ""


def put_roles(text: str, roles: Mapping[RankId, str]) -> str:
    """Return a text with the roles of ranks in place of their numbers."""
    if not roles:
        return text
    named = {name_rank(rank): role for rank, role in roles.items()}
    return _SINGLE.sub(lambda found: named.get(found[0], found[0]), text)
