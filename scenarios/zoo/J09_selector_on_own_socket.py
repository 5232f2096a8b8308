"""Rank 1 waits in epoll_wait for a word through a socket pair that only it has.

Control sockets of schedulers and of asyncio's friends: the one who was to write has gone or was
never started. Nothing outside the process is at the other end.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def add_control(given: Any) -> Any:
    """Add callbacks, once somebody has said that they may start."""
    import selectors
    import socket

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        hears, _says = socket.socketpair()
        with selectors.EpollSelector() as selector:
            selector.register(hears, selectors.EVENT_READ)
            selector.select()
    return run_usual_step(given)


CASE = Case(
    id="J09",
    title="rank 1 in epoll_wait on a socket pair of its own",
    cluster="C20",
    reports=("fsspec/s3fs#369",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="memory_callback",
        component=("callbacks",),
        waits_for=("itself",),
        cause=("event-loop",),
        avoids=("callbacks=none",),
    ),
    uses={"memory_callback": "add_control"},
)
