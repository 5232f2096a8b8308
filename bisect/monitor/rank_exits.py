"""How ranks ended, and what that means for the job; whether the job is told to end: signals may be
meant for the whole of it or for one rank alone, and its launcher may be gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ..base import events
from ..base.checkpoints import UserStep
from ..base.launchers import find_launcher
from ..base.outcomes import ENDED_ON_REQUEST
from ..base.place import GONE
from ..base.rank_state import FAULTS, RankState
from ..evidence.process import descendants, exit_code, open_life, variables_of
from . import clocks
from .monitor_process import call_in_thread

if TYPE_CHECKING:
    from ..base.identity import RankId
    from ..base.rank_facts import Ended, RankFacts
    from ..evidence.process import Life
    from .job import Job
    from .server import Server
    from .server_processes import ServerProcesses


STATES_AFTER = {  # what --on-hang leaves the job in, for the verdict's `job` line
    "end": "being ended: all ranks and their children",
    "report": "still running, still watched",
    "hold": "held for you: {pids}",
}
UNPROVED = "nothing proves that it hangs"
NOT_PROVED = f"{UNPROVED}: it may go on"
GONE_TOGETHER = 1.0  # seconds: ranks that leave within it leave together
MAY_TELL = 20.0  # seconds for a server to be up after its ranks, to end, or to say what has failed


def note_end(job: Job, member: RankState, told: int | None = None) -> None:
    """A rank's process has ended: take its exit status from the zombie, if it was not taken yet;
    `told`: what its pidfd has told of it.
    """
    status = exit_code(member.pid) if told is None else told
    if status is not None and (member.status is None or member.status >= 0 > status):
        member.status = status
    member.left = True
    member.left_at = member.left_at or time.monotonic()
    job.note(member, events.Ended(status=member.status))
    job.changed.set()


def stop_hearing(life: Life) -> None:
    """Hear no more of the end of a process, and give its descriptor back."""
    if life.descriptor is not None:
        asyncio.get_running_loop().remove_reader(life.descriptor)
    life.close()


def note_slow(job: Job, member: RankState) -> None:
    """A step or a phase ends: if it took longer than its deadline, it is listed as slow."""
    checkpoint = job.members.checkpoint_of(member)
    allowed = clocks.find_deadline(job.members, member, job.limits)
    if checkpoint is None or allowed is None or member.finished:
        return
    phase = checkpoint.phase if isinstance(checkpoint, UserStep) else member.phase
    seconds = time.monotonic() - clocks.find_clock_start(job.members, member)
    if seconds <= allowed:
        return
    from ..base.rank_facts import SlowStep

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


NOTICED = (
    10.0  # seconds in which torchrun has noticed an end (--monitor-interval is 0.1, and was 5)
)


def infer_statuses(ranks: Sequence[RankFacts], launcher: str, now: float) -> list[RankFacts]:
    """Return the ranks; one whose exit status its launcher took has ended with 0, if that launcher
    would have ended the others else, and had the time to.
    """
    others_go_on = any(facts.alive and not facts.left for facts in ranks)
    if not (others_go_on and find_launcher(launcher).ends_all):
        return list(ranks)
    return [
        replace(facts, status=0)
        if facts.left and facts.status is None and now - (facts.left_at or now) > NOTICED
        else facts
        for facts in ranks
    ]


def find_present(job: Job) -> frozenset[tuple[RankId, int, bool]]:
    """Return the ranks that have not ended, each with its pid, and whether it is connected. One
    whose process has ended, or that has said goodbye, is none of them, noted or not.
    """
    return frozenset(
        (member.rank, member.pid, member.rank in job.writers)
        for member in job.members
        if not member.left and member.left_at is None and not _has_ended(job, member)
    )


def _has_ended(job: Job, member: RankState) -> bool:
    life = job.lives.get(member.rank)
    return life is not None and life.has_ended()


def have_all_ended(job: Job) -> bool:
    """Return whether every rank that ever spoke has ended."""
    return all(life.has_ended() for life in job.lives.values())


def find_job_end(job: Job) -> Ended | None:
    """Return what the ends of ranks make of the job, None while it goes on.

    A status that torchrun's own SIGTERM caused says nothing: the first end counts.
    """
    members = list(job.members)
    if job.members.user_steps is not None:
        return _find_script_end(job, [m for m in members if m.left])
    gone = [m for m in members if m.has_left]
    if not gone:
        return None
    # A rank that has finished may still fail while its interpreter ends.
    early = [m for m in gone if not m.finished or (m.left and m.status not in (0, None))]
    if not early:
        return "done" if len(gone) == job.members.size else None
    first = min(early, key=lambda m: m.left_at or 0.0)
    if was_asked_to_end(first):
        return "interrupted"
    if len(early) == job.members.size:
        return "crash"
    # A status that could not be read any more was none that the launcher acts on.
    return "left" if first.status in (0, None) else "crash"


RESTARTED_WITHIN = 3.0  # seconds: torchrun started four ranks again after 0.4 to 1.5


def may_have_failed(job: Job, ended: Ended) -> bool:
    """Return whether what looks like a good end of a script, or like one that was asked for, may be
    that of an attempt that failed: of some ranks nothing tells how they ended, and their launcher
    may start all of them again.
    """
    is_unknown = any(m.left and m.status is None and not m.error for m in job.members)
    starts_again = any(m.max_restarts > m.attempt for m in job.members)
    is_said = ended in ("done", "interrupted") and not job.outer.were_interrupted()
    return is_said and is_unknown and starts_again and job.runs_script


async def was_started_again(job: Job) -> bool:
    """Return whether the launcher starts the ranks of the next attempt, which torchrun does for no
    other reason than that one of this attempt has failed (RESTART_COUNT counts failures alone).
    """
    launcher = open_life(int(job.place["launcher_pid"]))
    end = time.monotonic() + RESTARTED_WITHIN
    try:
        while not launcher.has_ended() and time.monotonic() < end:
            if await call_in_thread(_has_later_attempt, launcher.pid, job.attempt):
                return True
            await asyncio.sleep(RESTARTED_WITHIN / 12)
    finally:
        launcher.close()
    return False


def _has_later_attempt(launcher: int, attempt: int) -> bool:
    """Return whether a process below `launcher` is of a later attempt than `attempt`."""
    for pid in descendants([launcher]):
        count = (variables_of(pid) or {}).get("TORCHELASTIC_RESTART_COUNT", "")
        if count.isascii() and count.isdecimal() and int(count) > attempt:
            return True
    return False


def was_asked_to_end(member: RankState) -> bool:
    """Return whether a rank ended because a person or its launcher told it to."""
    return member.status in ENDED_ON_REQUEST


def _find_script_end(job: Job, gone: Sequence[RankState]) -> Ended | None:
    """Return the same of a script of the user's own, whose ranks need not end together: one that
    ended well has done all it had to do.
    """
    failed = [m for m in gone if m.last_error or _has_failed(m)]
    told = _find_end_of_server(job, gone, failed)
    if told:
        return told if told != "open" else None
    if failed:
        first = min(failed, key=lambda m: m.left_at or 0.0)
        was_asked = was_asked_to_end(first) or job.outer.were_interrupted()
        return "interrupted" if was_asked and not first.last_error else "crash"
    if len(gone) < job.members.size:
        return None
    # A server that is told to end kills what it has started: whoever reaped that has its status.
    is_unknown = any(m.status is None and not _is_ended_by_others(m) for m in gone)
    return "interrupted" if is_unknown and job.outer.were_interrupted() else "done"


def _may_fail_with_server(job: Job, server: ServerProcesses) -> bool:
    """Return whether an inference server is still to come up, and nobody has told it to end: its
    ranks have not all started, or have right before, or it is asked whether it is ready.
    """
    if job.is_ready or job.outer.were_interrupted():
        return False
    if job.outer.awaits_ready or not all(m.quiet for m in job.members):
        return True
    return server.answer_requests and all(
        (m.left_at or 0.0) < m.quiet_at + MAY_TELL for m in job.members
    )


def may_server_tell(job: Job) -> bool:
    """Return whether a server that has lost its ranks before it was ready still lives, and is
    likely to say why within seconds.
    """
    server = job.server
    if server is None or not _may_fail_with_server(job, server) or not server.is_one_alive():
        return False
    last = max((m.left_at or 0.0 for m in job.members), default=0.0)
    return time.monotonic() < last + MAY_TELL


def _find_end_of_server(
    job: Job, gone: Sequence[RankState], failed: Sequence[RankState]
) -> Ended | Literal["open", ""]:
    """Return what the ends of the ranks of a server mean, of which none tells an error: that the
    server has failed, as one of its other processes shows; "open" while one of these may show it;
    "left" where all that is known is that its ranks have ended. "" where the ranks' own ends tell.
    """
    if job.server is None or not _may_fail_with_server(job, job.server):
        return ""
    if any(m.last_error for m in failed):
        return ""
    if failed and not all(map(was_asked_to_end, failed)):
        return ""
    if not failed and len(gone) < sum(m.pid not in job.server for m in job.members):
        return ""
    if job.server.find_failure():
        return "crash"
    if may_server_tell(job):
        return "open"
    return "left" if job.server.is_one_alive() and not failed else ""


def _has_failed(member: RankState) -> bool:
    """Return whether the status with which a rank ended says that it failed. Of an actor only a
    signal says so that nobody sends: ray.kill() and the end of its driver end it with status 1, or
    by SIGTERM or SIGKILL, and what a method raises goes to the driver. An inference server that
    ends kills its ranks.
    """
    if _is_ended_by_others(member):
        return member.status is not None and -member.status in FAULTS
    return member.status not in (0, None)


def _is_ended_by_others(member: RankState) -> bool:
    return member.is_actor or (member.is_of_server and member.quiet)


# Seconds: a launcher that ends its ranks has signalled all of them within it.
SIGNALLED_TOGETHER = 1.0


def find_signal_target(
    heard: Mapping[int, float], living: Collection[int], now: float
) -> Literal["nobody", "job", "one"] | None:
    """Return which ranks the signals are for that ranks `heard` (since when); None: not clear yet.

    A launcher, a scheduler and a terminal signal all ranks. One that alone was sent a signal ends
    by it, or its own handler does what it likes: either way it is the others that go on.
    """
    senders = [heard[rank] for rank in living if rank in heard]
    if not senders:
        return "nobody"
    if len(senders) == len(living):
        return "job"
    if now < min(senders) + SIGNALLED_TOGETHER:
        return None
    return "job" if len(senders) > 1 else "one"


class Interruptions:
    """Whether the job is told to end: its ranks are signalled, or its launcher is gone."""

    def __init__(self, job: Job, server: Server, sample_ranks: Callable[[], None]) -> None:
        """`sample_ranks` sees pending signals, and calls note_pending_signal()."""
        self._job, self._server, self._sample_ranks = job, server, sample_ranks
        self._launcher = open_life(int(job.place["launcher_pid"]))
        self._is_signalled = False
        self._said_alone = False  # that the ranks go on without their launcher

    def note_pending_signal(self) -> None:
        """A signal that ends waits for a rank that cannot take it."""
        self._is_signalled = self._is_signalled or not self._are_of_server()

    def _are_of_server(self) -> bool:
        """Return whether signals come from the server that the ranks are of: what they mean its own
        end tells.
        """
        return self._job.server is not None and not self._job.outer.were_interrupted()

    def are_there(self) -> bool:
        """Return whether the job is told to end. Says so, once, where its launcher is gone."""
        if self._all_were_signalled():
            return True
        if self.is_launcher_gone():
            return self.go_on_without_launcher()
        return self._is_signalled

    def is_launcher_gone(self) -> bool:
        """Return whether the process that started the ranks has ended, as far as we can see it."""
        pid = int(self._job.place["launcher_pid"])
        if pid in (0, 1):  # in another pid namespace, or a container's first process: not known
            return False
        return pid == GONE or self._launcher.has_ended()

    def go_on_without_launcher(self) -> bool:
        """The launcher is gone. Return whether its ranks are lost without it: those of a pipeline
        would hang on. A script of the user's own goes on, and is watched on.
        """
        job = self._job
        pid = int(job.place["launcher_pid"])
        which = f"The launcher (pid {pid})" if pid != GONE else "The launcher"
        if job.runs_script or not job.place["launcher"]:
            if not self._said_alone and job.place["launcher"] and not have_all_ended(job):
                self._said_alone = True
                job.notes.append(f"{which[0].lower()}{which[1:]} is gone")
                job.say(f"{which} is gone; its ranks go on, still watched")
            return self._is_signalled
        job.notes.append(f"the launcher (pid {pid}) is gone")
        job.say("The launcher is gone: ending its ranks")
        return True

    def _all_were_signalled(self) -> bool:
        """Return whether the signals that ranks heard are for the job, and let one alone be."""
        if self._are_of_server():
            return False
        living = [m.rank for m in self._job.members if not m.has_left]
        meant = find_signal_target(self._server.signalled, living, time.monotonic())
        if meant == "one":
            self._sample_ranks()  # one that is stopped has it pending
            if not self._is_signalled:
                self._server.leave_alone()
        return meant == "job"
