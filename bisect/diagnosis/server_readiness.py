"""Whether an inference server is ready and waits for requests: its start is over, and that nothing
of it moves is as it should be. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..base.library_functions import Role, has_role
from ..base.process_facts import Frame, Look
from ..base.rank_facts import RankFacts
from ..base.server_processes import ServerProcess, find_server_process

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
    if not ranks or not all(one.looks and _serves(one.looks[-1]) for one in ranks):
        return False
    beside = [(role, looks[-1]) for one in ranks for role, looks in _list_roles(one)]
    engines = [look for role, look in beside if role.is_engine]
    servers = [look for role, look in beside if role.is_server]
    is_vllm = any("VLLM::" in "".join(one.looks[-1].command[:1]) for one in ranks)
    if is_vllm and not engines:
        return False
    return bool(servers) and all(map(_serves, engines)) and all(map(_listens, servers))


def _list_roles(one: RankFacts) -> Iterable[tuple[ServerProcess, Sequence[Look]]]:
    for looks in one.children:
        role = find_server_process(looks[-1].command) if looks else None
        if role is not None and not role.is_rank:
            yield role, looks


def _serves(look: Look) -> bool:
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
