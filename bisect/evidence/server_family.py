"""The processes of the inference server that ranks belong to, besides these: what started them, and
what else that has started. A server has them wait for one another before it is ready.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..base.command_words import is_resource_tracker
from ..base.proc import read_stat
from ..base.server_processes import NAMES, find_server_process
from .process import descendants, words_of

_DEEPEST = 8  # processes of a server, one above the other


def list_server_processes(ranks: Collection[int]) -> list[int]:
    """Return the processes of the server of these ranks (pids) that are neither ranks nor were
    started by one, what started a rank before all that has started it; [] where they belong to
    none.
    """
    above = list(dict.fromkeys(one for pid in ranks for one in _servers_above(pid)))
    if not above:
        return []
    inside = {*ranks, *descendants(ranks)}
    beside = [pid for pid in descendants(above) if pid not in inside and pid not in above]
    return [pid for pid in (*above, *beside) if not is_resource_tracker(words_of(pid))]


def _servers_above(pid: int) -> Iterator[int]:
    """Yield what has started a process of a server, up to the server itself: the last one."""
    for _ in range(_DEEPEST):
        about = read_stat(pid)
        if about is None or not about.comm.startswith(NAMES) or about.ppid <= 1:
            return
        role = find_server_process(words_of(pid))
        if role is None or not role.is_spawned:
            return
        pid = about.ppid
        yield pid
