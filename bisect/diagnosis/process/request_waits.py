"""Whether a process has asked another one, and goes on once that has answered: by its frames, or as
a server that has asked its own workers for who asks it.
"""

from __future__ import annotations

from ...base.library_functions import Role, find_role
from ...base.process_facts import waits_at_queue
from ...base.verdict_facts import Wait
from .blocked_syscalls import is_for_client, list_clients
from .loop_waits import runs_event_loop
from .pipe_writers import only_main_thread_acts
from .process_snapshot import ProcessSnapshot
from .public_calls import awaits_server_of_store


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
