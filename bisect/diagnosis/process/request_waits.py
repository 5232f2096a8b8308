"""Whether a process has asked another one, and goes on once that has answered: by its frames, or as
a server that has asked its own workers for who asks it; and which parents of ranks are asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...base.addresses import port_of
from ...base.library_functions import Role, find_role
from ...base.process_facts import Look, waits_at_queue
from ...base.rank_facts import RankFacts
from ...base.verdict_facts import Wait
from .blocked_syscalls import SLEEP_CALLS, is_for_client, list_clients
from .frames import frame_owner, innermost_python_frame
from .helper_processes import waits_for_room
from .loop_waits import runs_event_loop
from .pipe_writers import only_main_thread_acts
from .process_snapshot import ProcessSnapshot, merge_looks
from .public_calls import awaits_server_of_store
from .request_threads import list_served_ports, takes_connections


def waits_for_an_answer(view: ProcessSnapshot, wait: Wait) -> bool:
    """Return whether a process waits for what the one that is known of its `wait` is to answer or
    to send it, and for nothing else: it asks by HTTP, asks its workers, or waits for what the first
    of a group sends; or it is an event loop with a client, and hears its workers by a queue.
    """
    if wait.pid is None or view.running:
        return False
    asks = find_role(view.frames, Role.AWAITS_ANSWER) is not None
    is_for_workers = asks_workers_for_client(view) and not is_for_client(wait, view.look)
    return asks or is_for_workers or awaits_server_of_store(view)


def asks_workers_for_client(view: ProcessSnapshot) -> bool:
    """Return whether the main thread is the loop of a server that has a client, and hears others by
    a message queue.
    """
    is_at_queue = waits_at_queue(view.call, view.look.kernel)
    return is_at_queue and runs_event_loop(view) and bool(list_clients(view.look))


def answers_by_main_thread(asks: ProcessSnapshot, asked: ProcessSnapshot) -> bool:
    """Return whether no other thread of a process answers what another one `asks`: a store is given
    by who computes, workers and engines serve one at a time, and an event loop in the main thread
    takes all requests. A server with threads of its own may answer whatever its main thread does.
    """
    if awaits_server_of_store(asks) or find_role(asks.frames, Role.ASKS_BY_HTTP) is None:
        return True
    return asks_workers_for_client(asked) or only_main_thread_acts(asked.look)


def keep_feeding_parents(ranks: Sequence[RankFacts]) -> list[RankFacts]:
    """Return the ranks; of those whose parent is looked at as a process beside them, without it
    unless it waits for room in a queue, is a server and has a request of the rank, or looks for
    something itself in the job's own code.
    """
    return [_drop_parent(one) if _has_other_parent(one) else one for one in ranks]


def _has_other_parent(facts: RankFacts) -> bool:
    looks = facts.looks_at(facts.parent)
    acts = _waits_for_room(looks) or _is_asked(looks, facts) or _looks_for_something(looks)
    return facts.parent in facts.beside and not acts


def _waits_for_room(looks: Sequence[Look]) -> bool:
    view = merge_looks(looks)
    return view is not None and not view.running and waits_for_room(view)


def _is_asked(looks: Sequence[Look], facts: RankFacts) -> bool:
    """Return whether the main thread of a process takes requests, and a rank is connected to a port
    at which it listens.
    """
    view = merge_looks(looks)
    if view is None or view.main is None or not takes_connections(view.main):
        return False
    ports = list_served_ports(view.look)
    asks = (one for one in facts.looks[-1].sockets if view.look.pid in one.peer_pids)
    return any(port_of(one.peer) in ports for one in asks)


def _looks_for_something(looks: Sequence[Look]) -> bool:
    view = merge_looks(looks)
    inner = innermost_python_frame(view.frames) if view is not None else None
    if view is None or inner is None or frame_owner(inner, "") != "user":
        return False
    return view.call_name in SLEEP_CALLS


def _drop_parent(facts: RankFacts) -> RankFacts:
    children = tuple(one for one in facts.children if not one or one[-1].pid != facts.parent)
    beside = tuple(pid for pid in facts.beside if pid != facts.parent)
    return replace(facts, children=children, beside=beside)
