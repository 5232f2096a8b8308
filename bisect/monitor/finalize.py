"""The verdict: made, on disk and printed, and only then what --on-hang says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base import events
from ..base.identity import UnknownRank
from ..base.json_codec import to_json
from ..base.outcomes import CUT_SHORT
from ..base.rank_facts import NOTHING_MOVES, Ended, JobFacts
from ..base.verdict_facts import Verdict
from ..base.words import format_ranks
from ..diagnosis.snapshot import Snapshot
from .ending import end_job
from .job_facts import make_job_facts, seconds_still
from .judgement import (
    Judgement,
    add_all_evidence,
    find_held_back,
    find_job_beside,
    find_who_starts,
    judge_here,
    judge_with_others,
    look_again_later,
)
from .monitor_process import describe_shortage
from .programs_beside import ProgramsBeside, is_worth_waiting, stand_for_programs
from .verdict_output import (
    describe_state,
    print_verdict,
    say_outcome,
    tell_torchelastic,
    write_evidence,
    write_node,
)

if TYPE_CHECKING:
    from .clocks import Overdue
    from .job import Job
    from .server import Server

# What a node says by itself of a verdict that another one prints.
_TOLD_ELSEWHERE = {"crash": "A rank has failed", "ok": "All ranks here have ended well"}
MACHINE_LIMIT = 0.5  # seconds to see what there is of GPUs and memory after a crash


async def close_job(
    job: Job,
    server: Server,
    ended: Ended,
    seen: Snapshot,
    due: Overdue | None = None,
    inquiry: int = 0,
) -> None:
    """Judge, write, publish, print; then end the job, or leave it, as --on-hang says. `inquiry`:
    the lead of all nodes has asked, and only if it gives a verdict there is one.

    What fails on the way costs that part alone, and then nothing is ended.
    """
    job.closing, failed = True, job.failures.count
    since = time.monotonic() if due is None else due.since
    if ended == "interrupted":
        seen = find_held_back(job) or seen
    seen = seen.update(await add_all_evidence(job, seen.ranks, ended))
    facts = make_job_facts(job, ended, due, *await find_who_starts(job))
    async with job.judging:
        if job.verdict is not None and ended in NOTHING_MOVES and not inquiry:
            return  # that of the programs beside it has come meanwhile
        beside = None if inquiry else await find_job_beside(job, facts, seen)
        if beside is not None and is_worth_waiting(job, beside):
            _wait_for_programs(job, beside)
            return
        here, seen = await judge_here(job, facts, seen, due, beside)
        judged = await judge_with_others(job, here, seen, ended, due, inquiry)
        if judged is None:
            return
        await _conclude(job, server, ended, here, judged, since, failed)
        if beside is not None:
            for other in beside.others:
                await _share_verdict(judged, other, ended, beside, since)


async def _conclude(
    job: Job,
    server: Server,
    ended: Ended,
    here: Judgement,
    judged: Judgement,
    since: float,
    failed: int,
    prints: bool = True,
) -> None:
    """Write, publish and print what was judged; then end the job, if that is asked for."""
    job.verdict, job.closed_at = judged.verdict, time.monotonic()
    with job.failures.of("write the evidence"):
        write_evidence(job, judged.facts, judged.verdict, judged.graph, judged.ranks)
    facts, verdict = _add_figures(job, judged.facts, judged.verdict, since)
    judged, proof = replace(judged, facts=facts, verdict=verdict), judged.proof
    job.verdict = verdict
    with job.failures.of("write the verdict"):
        write_node(job, here.facts, here.ranks)
        job.files.write_json("verdict.json", to_json(verdict))
    ending = does_verdict_end_job(job, verdict, ended, proof, judged.is_step_over)
    if verdict.outcome != "ok" and job.failures.count > failed:
        ending = False
    where = str(job.files.path)
    outcome = verdict.outcome
    job.note(None, events.Verdict(outcome=outcome, ends=ending, proof=proof, run_dir=where))
    published = await _publish(job)
    lines = _tell(job, judged, published, ending) if prints else []
    if ending:
        await _carry_out(job, server, verdict, ended, lines, since)
    with job.failures.of("make the reports"):
        _make_reports(job, verdict, published)


def _wait_for_programs(job: Job, beside: ProgramsBeside) -> None:
    """Judge nothing yet, for programs beside the job move, and say so once."""
    jobs = [job, *(one.job for one in beside.others)]
    if not any(one.beside_since for one in jobs):
        job.say(f"Nothing moves but {beside.awaited}: all of them are judged together")
    job.beside_since = job.beside_since or time.monotonic()
    look_again_later(job)


async def _share_verdict(
    judged: Judgement, other: Server, ended: Ended, beside: ProgramsBeside, since: float
) -> None:
    """Let another job of the same programs have the verdict that was printed for all."""
    job = other.job
    is_open = job.verdict is None or job.verdict.outcome == "silent"
    if not is_open or job.was_ended or all(member.left for member in job.members):
        return
    with job.failures.of("take the verdict of the programs beside it"):
        stand_for_programs(job, beside)
        job.closing, job.silent_until = True, time.monotonic() + job.limits.stall
        await _conclude(job, other, ended, judged, judged, since, job.failures.count, prints=False)


def _tell(job: Job, judged: Judgement, published: bool, ending: bool) -> list[str]:
    """Print the verdict, or who prints it; return the lines that were printed."""
    with job.failures.of("print the verdict"):
        if judged.told_by:
            for sentence in (*job.files.take_news(), *([] if published else job.files.losses())):
                job.say(sentence)
            why = _TOLD_ELSEWHERE.get(judged.verdict.outcome, "Nothing moves")
            line = f"{why}; the verdict comes from {judged.told_by}"
            job.say(line)
            return [line]
        state = describe_state(job, judged.verdict, ending, judged.proof)
        return print_verdict(
            job, judged.facts, judged.verdict, judged.ranks, judged.graph, published, state
        )
    return []


async def _carry_out(
    job: Job, server: Server, verdict: Verdict, ended: Ended, lines: Sequence[str], since: float
) -> None:
    """End the job: ranks that wait are told first. What is begun here is done to its end."""
    with job.failures.of("close the table of ranks"):
        await job.live.close()
    with job.failures.of("tell the outcome"):
        server.let_signalled_go()
        say_outcome(job, verdict)
        if verdict.outcome in CUT_SHORT:
            await tell_torchelastic(job, verdict, lines, since)
    job.was_ended = True
    if verdict.outcome == "ok" and not job.is_one_of_several:
        # Before the ranks leave: were we killed after that, it would not be removed.
        with job.failures.of("remove its own files"):
            job.hush()
            job.remove_folder()
            job.remove_temporary_files()
    for member in job.members:
        with job.failures.of("tell the outcome"):
            job.tell(member.rank, events.Written())
    with job.failures.of("end the job"):
        await end_job(job, verdict, ended)


async def _publish(job: Job) -> bool:
    with job.failures.of("copy the run folder"):
        try:
            return await job.files.publish()
        except Exception as error:
            short = describe_shortage(error)
            why = f"short of {short}" if short else repr(error)
            job.files.trouble = job.files.trouble or why
            raise
    return False


def _make_reports(job: Job, verdict: Verdict, published: bool) -> None:
    where = job.files.path if published else job.files.stage
    if where is not None and (verdict.outcome != "ok" or job.reports.were_made):
        job.reports.begin(str(where))


def reopen_job(job: Job) -> None:
    """Take a verdict back: what was called hung moves again."""
    assert job.verdict is not None
    ranks, where = job.verdict.ranks.culprit, job.verdict.where
    is_part = len(where) == 1 and where[0].role and isinstance(where[0].rank, UnknownRank)
    who = where[0].role if is_part else format_ranks(ranks)
    moves = "moves" if len(ranks) == 1 else "move"
    job.say(f"Taken back: {who} {moves} again; watching on")
    job.note(None, events.TakenBack())
    job.verdict, job.closing = None, False


def does_verdict_end_job(
    job: Job, verdict: Verdict, ended: Ended, proof: str, is_step_over: bool = False
) -> bool:
    """Return whether the verdict ends the job, or what is left of it.

    A walk of ours is not ended while it is only silent, unless --limit is over. A script of the
    user's own is ended only where that was asked for, and where a hang is proved,
    or the deadline of a step or the time limit of all is over: what stands still may be a server,
    or slow in a way that no look shows; and a rank that was told to end may be saving what it has.
    """
    limit = job.settings["limit"]
    is_late = bool(limit) and time.monotonic() > job.started + limit
    if not job.runs_script:
        is_early = verdict.outcome == "silent" and not is_late
        return (job.ends_it and not is_early) or verdict.outcome in ("ok", "crash", "interrupted")
    if not job.ends_it or ended == "done":
        return False
    if ended == "past" or (job.is_trial and verdict.outcome != "silent"):
        return True
    return ended != "interrupted" and (bool(proof) or is_late or is_step_over)


def _add_figures(
    job: Job, facts: JobFacts, verdict: Verdict, since: float
) -> tuple[JobFacts, Verdict]:
    """Add how long the culprits have stood still, the time that it took until everything but the
    verdict was on disk, and how many steps of training were done.
    """
    now, culprits = time.monotonic(), job.find_members(verdict.ranks.culprit)
    still = seconds_still(job, now, culprits) if culprits else facts.still
    still = verdict.seconds.still if still is None else still  # culprits of another node
    to_verdict = round(now - since, 3)
    seconds = replace(verdict.seconds, still=still, to_verdict=to_verdict)
    verdict = replace(verdict, seconds=seconds, trained=_count_steps(job))
    return replace(facts, still=still, to_verdict=to_verdict), verdict


def _count_steps(job: Job) -> int | None:
    """Return how many steps of training the rank that did most has done after the first ones, None
    where none is past those. Of one that has ended its ring still tells.
    """
    steps = []
    for member in job.members:
        if member.trained is not None:
            pulse = job.logs.read_pulse(member.rank)
            steps.append(member.trained if pulse is None else pulse.steps)
    return max(steps, default=None)
