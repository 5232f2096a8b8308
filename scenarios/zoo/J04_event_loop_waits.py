"""Rank 0 awaits something in an asyncio loop that nobody will ever do.

fsspec, aiohttp and the clients of many stores are asyncio inside (fsspec/filesystem_spec#835):
a future that is lost leaves the loop in epoll_wait without a time limit, with its own wake-up
socket as the only one it listens to.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


async def download() -> None:
    """Wait for a word from a task that was never started."""
    import asyncio

    finished = asyncio.Event()
    await finished.wait()


def load_tokenizer(given: Any) -> Any:
    """Return the tokenizer, after a download on rank 0."""
    import asyncio

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 0:
        asyncio.run(download())
    return run_usual_step(given)


CASE = Case(
    id="J04",
    title="an asyncio loop of rank 0 waits for ever",
    cluster="C7",
    reports=("fsspec/filesystem_spec#835",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="tokenizer",
        component=("hub",),
        waits_for=("itself",),
        cause=("event-loop",),
    ),
    uses={"tokenizer": "load_tokenizer"},
)
