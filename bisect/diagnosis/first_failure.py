"""Of ranks that ended: which failed by themselves, and which only after another one. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from ..base.identity import RankId
from ..base.rank_facts import RankFacts

# What a launcher ends the others with, and what an exit by it looks like from a shell.
_ENDED_BY_LAUNCHER = (-signal.SIGTERM, 128 + signal.SIGTERM)
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
# What the others say when their peer is gone (gloo, NCCL, the store), and a server when a part of
# it is (vllm/v1/engine/utils.py, v1/executor/multiproc_executor.py, v1/engine/exceptions.py;
# sglang/srt/entrypoints/engine.py).
_FOLLOWING_ERRORS = re.compile(
    r"connection (?:was )?(?:likely )?(?:closed|reset|refused|aborted)|closed by peer"
    r"|broken pipe|DistNetworkError|recv\w* (?:0|zero) bytes|remote process exited"
    r"|NCCL communicator was aborted|SignalException|SIGTERMException"
    r"|Engine core initialization failed|WorkerProc initialization failed|EngineDeadError"
    r"|Please see the error messages above|scheduler is dead",
    re.IGNORECASE,
)
# Seconds by which one failure comes before another: on one machine, and by the clocks of two. Who
# reads from a rank that failed fails some milliseconds after it.
_APART, _APART_ON_TWO_HOSTS = 0.003, 0.01
_NOTICED_WITHIN = 0.5  # seconds after which the end of a rank that said nothing is noticed


def find_first_to_fail(ranks: Sequence[RankFacts]) -> tuple[RankId, ...]:
    """Return the ranks that ended by themselves; not those that a launcher ended afterwards, nor
    those that failed because a peer was gone, or by another error after the first one.
    """
    gone = [r for r in ranks if r.left and not r.finished]
    failed = [r for r in gone if r.error or r.status not in (None, 0)]
    if not failed:
        return tuple(sorted(r.rank for r in _list_first_unknown(gone) or gone))
    own = [r for r in failed if r.status not in _ENDED_BY_LAUNCHER]
    own = own or _list_unknown_before(failed, gone) or failed
    left = [r for r in gone if r.status == 0 and not r.error]
    # Where all that failed did so for want of a peer, one that left without a word was that peer;
    # but not where it had never called what the others failed in.
    for_want = [r for r in own if _calls_what_nobody_did(r, left)] or left
    leading = [r for r in own if not _FOLLOWING_ERRORS.search(r.error)] or for_want or own
    # A launcher that lost its patience kills; so may the kernel (out of memory), but then first.
    by_itself = [r for r in leading if r.status not in _KILLED or r.error]
    moments = [r.left_at for r in by_itself if r.left_at is not None]
    killed = [r for r in leading if r not in by_itself]
    if by_itself and moments:
        first = min(moments)
        killed = [r for r in killed if r.left_at is not None and r.left_at < first]
        by_itself = [] if killed else _drop_later_errors(by_itself)
    elif by_itself:
        killed = []
    return tuple(sorted(r.rank for r in [*by_itself, *killed]))


def _list_unknown_before(ended: Sequence[RankFacts], gone: Sequence[RankFacts]) -> list[RankFacts]:
    """Return the ranks that left, nobody knows how, before any of those was `ended` that a launcher
    ended: for their sake.
    """
    first = min((r.left_at for r in ended if r.left_at is not None), default=0.0)
    return [r for r in gone if r.status is None and r.left_at is not None and r.left_at < first]


def _list_first_unknown(gone: Sequence[RankFacts]) -> list[RankFacts]:
    """Return those that left first, where of none is known how it ended; nobody where they left
    together.
    """
    moments = [r.left_at for r in gone if r.left_at is not None and r.status is None]
    if len(moments) < len(gone) or not moments:
        return []
    return [r for r in gone if (r.left_at or 0.0) <= min(moments) + _APART]


def _drop_later_errors(failed: Sequence[RankFacts]) -> list[RankFacts]:
    """Return the ranks without those that failed after the first one, by an error of another kind:
    torchrun as well takes the first failure for the root cause (torch.distributed.elastic's
    multiprocessing/errors).
    """
    timed = [one for one in failed if one.left_at is not None]
    if len(timed) < len(failed):
        return list(failed)
    first = min(timed, key=lambda one: one.left_at or 0.0)
    return [one for one in failed if not _follows(first, one)]


def _follows(first: RankFacts, later: RankFacts) -> bool:
    if _kind_of_error(first) == _kind_of_error(later):
        return False
    apart = (later.left_at or 0.0) - (first.left_at or 0.0)
    if not later.error:
        return apart > _NOTICED_WITHIN
    return apart > (_APART if first.host == later.host else _APART_ON_TWO_HOSTS)


def _kind_of_error(facts: RankFacts) -> str:
    return facts.error.partition(":")[0]


def _calls_what_nobody_did(failed: RankFacts, left: Sequence[RankFacts]) -> bool:
    """Return whether a rank failed in a collective of a line from which none of the `left` ranks
    ever called one, by their own logs.
    """
    logs = [[one for log in r.collectives for one in log.operations] for r in (failed, *left)]
    if not left or not all(logs):
        return False
    last = max(logs[0], key=lambda one: one.at)
    places = {(one.kind, one.file, one.site) for log in logs[1:] for one in log}
    return (last.kind, last.file, last.site) not in places
