"""The parts of an inference server: what its ranks and other processes are called, and whether it
is ready and waits for requests. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..base.command_words import has_title, name_program
from ..base.identity import RankId, UnknownRank, name_rank
from ..base.library_functions import Role, has_role
from ..base.process_facts import Frame, Look
from ..base.process_roles import TITLE, ServerProcess, find_server_process
from ..base.rank_facts import RankFacts

_SINGLE = re.compile(r"\brank (?:\d+|\?(?: \([^)]*\))?)(?![\d-])")


def find_roles(ranks: Sequence[RankFacts]) -> dict[RankId, str]:
    """Return by rank what it is in its server; {} for ranks that are in none. One that died is
    called as the others are, by its number.
    """
    known = {one.rank: role for one in ranks if (role := _role_of(one.looks)) is not None}
    engines = _name_engines(ranks)
    # Before they know their place in a group, all workers have the same title.
    counts = Counter(role.name for role in known.values())
    found = {
        rank: role.name + f" {rank}" * (counts[role.name] > 1) + _inside(role, engines)
        for rank, role in known.items()
    }
    alike = next((role for role in known.values() if role.is_rank), None)
    if alike is not None and all({k for k, _ in r.numbers} == {"TP"} for r in known.values()):
        for one in ranks:
            # What has words of its own is another program: the trainer beside its server.
            is_another = bool(one.looks and one.looks[-1].command)
            if isinstance(one.rank, int) and one.rank not in found and not is_another:
                name = re.sub(r"\d+$", str(one.rank), alike.name)
                found[one.rank] = name + _inside(alike, engines)
    found = {one.rank: one.title for one in ranks if one.title} | found
    # Whose number nobody knows goes by its own title, or by its program where others run another.
    nameless = [one for one in ranks if isinstance(one.rank, UnknownRank) and one.rank not in found]
    programs = [name_program(one.looks[-1].command if one.looks else ()) for one in nameless]
    for one, its_program in zip(nameless, programs, strict=True):
        words = one.looks[-1].command if one.looks else ()
        if has_title(words):
            found[one.rank] = words[0]
        elif its_program and programs.count(its_program) == 1 and len(programs) > 1:
            found[one.rank] = its_program
    return found


_LAST_NUMBER = re.compile(r"\d+(?=\D*$)")


def find_titles(ranks: Sequence[RankFacts]) -> dict[RankId, str]:
    """Return by rank the title that it gave itself (setproctitle), where it has a number and no
    two have the same: what it is in a server of the user's own. Where all titles end in the number
    of their ranks, one that has no process is called as they are.
    """
    found: dict[RankId, str] = {
        one.rank: words[0].strip()
        for one in ranks
        if isinstance(one.rank, int) and one.looks and has_title(words := one.looks[-1].command)
        if not words[0].startswith(TITLE) and find_server_process(words) is None
    }
    if len({*found.values()}) != len(found):
        return {}
    numbers = {rank: _LAST_NUMBER.search(title) for rank, title in found.items()}
    first = next(iter(found.values()), "")
    patterns = {_LAST_NUMBER.sub("#", title) for title in found.values()}
    if len(patterns) == 1 and all(n is not None and int(n[0]) == r for r, n in numbers.items()):
        rest = (one.rank for one in ranks if isinstance(one.rank, int) and not one.looks)
        found |= {rank: _LAST_NUMBER.sub(str(rank), first) for rank in rest}
    return found


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


READY = "is ready, and waits for requests"
# What a loop that serves stands in while nothing is asked of it: the queues of its engine, and how
# one rank hands on to the others that there is nothing.
_WAITING = re.compile(
    r"(?:^|/)(?:shm_broadcast|contextlib|queue|queues|connection|threading|selectors)\.py$|/zmq/"
    r"|/torch/distributed/|/sglang/srt/(?:utils|managers/scheduler)\S*\.py$|^<frozen "
)
_AT_WORK = re.compile(r"run_batch|forward\w*|process_\w+|handle_\w+|get_next_batch\w*")


def is_ready(ranks: Sequence[RankFacts]) -> bool:
    """Return whether these are the ranks of a server that is ready: each waits in the loop that
    serves, so does its engine, and the server listens.
    """
    if not ranks or not all(one.looks and _hears_requests(one.looks[-1]) for one in ranks):
        return False
    beside = [(role, looks[-1]) for one in ranks for role, looks in _list_roles(one)]
    engines = [look for role, look in beside if role.is_engine]
    servers = [look for role, look in beside if role.is_server]
    is_vllm = any("VLLM::" in "".join(one.looks[-1].command[:1]) for one in ranks)
    if is_vllm and not engines:
        return False
    return bool(servers) and all(map(_hears_requests, engines)) and all(map(_listens, servers))


def _list_roles(one: RankFacts) -> Iterable[tuple[ServerProcess, Sequence[Look]]]:
    for looks in one.children:
        role = find_server_process(looks[-1].command) if looks else None
        if role is not None and not role.is_rank:
            yield role, looks


def _hears_requests(look: Look) -> bool:
    """Return whether the main thread of a process waits in the loop that serves requests."""
    return look.main is not None and stands_in_serving_loop(look.main.frames)


def stands_in_serving_loop(frames: Sequence[Frame]) -> bool:
    """Return whether a stack (innermost first) stands in a loop that serves, and only waits."""
    for frame in frames:
        if has_role(frame.file, frame.name, Role.SERVES_REQUESTS):
            return True
        is_wait = frame.native or _WAITING.search(frame.file)
        if not is_wait or _AT_WORK.fullmatch(frame.name.rpartition(".")[2]):
            return False
    return False


def _listens(look: Look) -> bool:
    return any(one.state == "LISTEN" and one.family.startswith("tcp") for one in look.sockets)
