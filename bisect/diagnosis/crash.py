"""Which ranks made a job crash, and which only followed."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from ..facts import RankFacts

# What a launcher ends the others with, and what an exit by it looks like from a shell.
_ENDED_BY_LAUNCHER = (-signal.SIGTERM, 128 + signal.SIGTERM)
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
# What the others say when their peer is gone (gloo, NCCL, the store).
_FOLLOWS = re.compile(
    r"connection (?:was )?(?:likely )?(?:closed|reset|refused|aborted)|closed by peer"
    r"|broken pipe|DistNetworkError|recv\w* (?:0|zero) bytes|remote process exited"
    r"|NCCL communicator was aborted|SignalException|SIGTERMException",
    re.IGNORECASE,
)


def first_to_fail(ranks: Sequence[RankFacts]) -> tuple[int, ...]:
    """Return the ranks that ended by themselves; not those that a launcher ended afterwards, nor
    those that failed because a peer was gone.
    """
    gone = [r for r in ranks if r.left and not r.finished]
    failed = [r for r in gone if r.error or r.status not in (None, 0)]
    if not failed:
        return tuple(sorted(r.rank for r in gone))
    own = [r for r in failed if r.status not in _ENDED_BY_LAUNCHER] or failed
    left = [r for r in gone if r.status == 0 and not r.error]
    # Where all that failed did so for want of a peer, one that left without a word was that peer.
    leading = [r for r in own if not _FOLLOWS.search(r.error)] or left or own
    # A launcher that lost its patience kills; so may the kernel (out of memory), but then first.
    by_itself = [r for r in leading if r.status not in _KILLED or r.error]
    moments = [r.left_at for r in by_itself if r.left_at is not None]
    killed = [r for r in leading if r not in by_itself]
    if by_itself and moments:
        first = min(moments)
        killed = [r for r in killed if r.left_at is not None and r.left_at < first]
        by_itself = [] if killed else by_itself
    elif by_itself:
        killed = []
    return tuple(sorted(r.rank for r in [*by_itself, *killed]))
