"""Which thread of a server answers a request. Pure.

The main thread of a server with a thread for each request takes connections (socketserver.py,
serve_forever; an event loop), and says nothing of what the request waits for.
"""

from __future__ import annotations

import re

from ..base.process_facts import Look, Thread
from .frames import frame_owner, unqualified_name
from .process_snapshot import put_thread_first

# How main threads wait for connections: socketserver, an event loop, multiprocessing's managers.
_TAKES_CONNECTIONS = (
    (re.compile(r"/(?:socketserver|http/server)\.py$"), re.compile("serve_forever")),
    (re.compile(r"/asyncio/(?:base_events|runners)\.py$"), re.compile("run_\\w+|_run_once|run")),
    (re.compile(r"/multiproc?ess(?:ing)?/managers\.py$"), re.compile("serve_forever")),
    (re.compile(r"/(?:uvloop|uvicorn)/\S+$"), re.compile("run|serve")),
)
_NEAR = 6  # Python frames from the innermost one in which such a function stands


def put_request_thread_first(look: Look) -> Look:
    """Return a look at a server as if the thread that answers a request were its main thread; any
    other look, and one at a server that has no such thread, as it is.
    """
    if look.main is None or not _takes_connections(look.main):
        return look
    others = [one for one in look.threads if one.os_id not in (None, look.pid)]
    chosen = next((one for one in others if _is_at_work(one)), None)
    return look if chosen is None else put_thread_first(look, chosen.os_id or 0)


def _takes_connections(thread: Thread) -> bool:
    python = [frame for frame in thread.frames if not frame.native][:_NEAR]
    return any(
        file.search(one.file) and names.fullmatch(unqualified_name(one.name))
        for one in python
        for file, names in _TAKES_CONNECTIONS
    )


def _is_at_work(thread: Thread) -> bool:
    """Return whether a thread is in the job's own code."""
    return any(frame_owner(one, "") == "user" for one in thread.frames if not one.native)
