"""How ranks ended, and what that means for the job."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..checkpoints import OwnStep
from ..evidence.sample import exit_code
from . import clocks
from .members import Member

if TYPE_CHECKING:
    from ..facts import Ended
    from .job import Job

STATES_AFTER = {  # what --on-hang leaves the job in, for the verdict's `job` line
    "end": "being ended: all ranks and their children",
    "report": "still running, still watched",
    "hold": "held for you: {pids}",
}
TOLD_TO_GO = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)


def note_end(job: Job, member: Member) -> None:
    """A rank's process has ended: take its exit status from the zombie, if nobody has yet."""
    status = exit_code(member.pid)
    if status is not None and (member.status is None or member.status >= 0 > status):
        member.status = status
    member.left = True
    member.left_at = member.left_at or time.monotonic()
    job.note(member, {"t": "ended", "status": member.status})
    job.changed.set()


def note_slow(job: Job, member: Member) -> None:
    """A step or a phase ends: if it took longer than its deadline, it is listed as slow."""
    checkpoint = job.members.checkpoint_of(member)
    allowed = clocks.deadline(job.members, member, job.limits)
    if checkpoint is None or allowed is None or member.finished:
        return
    phase = checkpoint.phase if isinstance(checkpoint, OwnStep) else member.phase
    seconds = time.monotonic() - clocks.began(job.members, member)
    if seconds <= allowed:
        return
    from ..facts import SlowStep  # of many classes, that all ranks would wait for

    key = (checkpoint.number, phase)
    before = job.slow_steps.get(key)
    ranks = sorted({member.rank, *(before.ranks if before else ())})
    job.slow_steps[key] = SlowStep(
        checkpoint=checkpoint.shown,
        name=checkpoint.name,
        phase=phase,
        ranks=tuple(ranks),
        seconds=round(max(seconds, before.seconds if before else 0.0), 3),
        deadline=allowed,
        moved=member.moving,
    )


def how_it_ended(job: Job) -> Ended | None:
    """Return what the ends of ranks make of the job, None while it goes on.

    A status that torchrun's own SIGTERM caused says nothing: the first end counts.
    """
    members = list(job.members)
    if job.members.own is not None:
        return _how_a_script_ended(job, [m for m in members if m.left])
    gone = [m for m in members if m.left or m.left_at is not None]
    if not gone:
        return None
    # A rank that has finished may still fail while its interpreter ends.
    early = [m for m in gone if not m.finished or (m.left and m.status not in (0, None))]
    if not early:
        return "done" if len(gone) == len(job.members.expected) else None
    first = min(early, key=lambda m: m.left_at or 0.0)
    if was_told_to_go(first):
        return "interrupted"
    if len(early) == len(job.members.expected):
        return "crash"
    # A status that nobody could read any more was none that the launcher minds.
    return "left" if first.status in (0, None) else "crash"


def was_told_to_go(member: Member) -> bool:
    """Return whether a rank ended because a person or its launcher told it to."""
    return member.status in TOLD_TO_GO or member.status == 130


def _how_a_script_ended(job: Job, gone: Sequence[Member]) -> Ended | None:
    """Return the same of a script of the user's own, whose ranks need not end together: whoever has
    ended well has done all it had to do.
    """
    failed = [m for m in gone if m.error or m.status not in (0, None)]
    if failed:
        first = min(failed, key=lambda m: m.left_at or 0.0)
        return "interrupted" if was_told_to_go(first) and not first.error else "crash"
    return "done" if len(gone) == len(job.members.expected) else None
