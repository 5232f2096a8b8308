"""What is made of all that this node has seen of a job that stands still or has ended: with ranks
that never spoke, programs beside it and other nodes; and whether a hang is proved.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base import events
from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.rank_facts import NOTHING_MOVES, Ended, JobFacts, LostNode, RankFacts
from ..base.verdict_facts import Ranks, Verdict
from ..base.words import begin_sentence, format_ranks
from ..collect.source_facts import add_source_facts
from ..diagnosis.process.time_limits import find_time_limit, note_given_limit
from ..diagnosis.snapshot import Snapshot
from ..diagnosis.verdict import OUTCOMES, judge_snapshot
from ..diagnosis.verdict_skeleton import make_verdict_skeleton
from ..diagnosis.wait_graph import WaitGraph
from . import clocks
from .clocks import IN_DOUBT, OTHER_NODES_LIMIT
from .failed_targets import read_failed_targets
from .job import HeldBack
from .job_facts import (
    describe_hearing,
    describe_starting,
    make_job_facts,
    seconds_still,
)
from .missing_ranks import find_silent_ranks
from .programs_beside import (
    ProgramsBeside,
    find_programs_beside,
    stand_for_programs,
)
from .rank_exits import infer_statuses, was_asked_to_end

if TYPE_CHECKING:
    from ..link.messages import Judged
    from .asked_hosts import ToldOfHosts
    from .clocks import Overdue
    from .job import Job

MACHINE_LIMIT = 0.5  # seconds to see what there is of GPUs and memory after a crash


async def find_job_beside(job: Job, facts: JobFacts, seen: Snapshot) -> ProgramsBeside | None:
    """Return the job with the programs beside it that are ranks of it, where nothing of it moves;
    None where there are none.
    """
    if facts.ended not in NOTHING_MOVES or job.nodes is not None:
        return None
    with job.failures.of("look for the programs beside it"):
        return await find_programs_beside(job, facts, seen)
    return None


@dataclass(frozen=True)
class Judgement:
    """A verdict, and what it rests on."""

    verdict: Verdict
    facts: JobFacts
    ranks: Sequence[RankFacts]
    graph: WaitGraph
    proof: str  # in words, that the job cannot go on by itself; "": nothing proves it
    is_step_over: bool  # a deadline is
    told_by: str = ""  # the host that tells it, "" where it is this one


async def judge_here(
    job: Job,
    facts: JobFacts,
    seen: Snapshot,
    due: Overdue | None = None,
    beside: ProgramsBeside | None = None,
) -> tuple[Judgement, Snapshot]:
    """Return how this node judges by what it sees itself, and all that it has seen."""
    facts, seen = await _find_all_ranks(job, facts, seen, beside)
    await _find_next_lead(job, facts.ended)
    return _judge_facts(job, facts.ended, facts, seen, due)


async def _find_all_ranks(
    job: Job, facts: JobFacts, seen: Snapshot, beside: ProgramsBeside | None
) -> tuple[JobFacts, Snapshot]:
    """Return the job and its ranks, with those that are programs beside it, or that it has started
    and that never spoke.
    """
    if beside is not None:
        stand_for_programs(job, beside)
        return beside.facts, beside.seen
    facts, found = _find_spawned(job, facts, seen)
    if found is seen:
        return facts, seen
    # So far they were processes of their program: of these less is read in the source.
    return facts, found.update(await add_source_facts(found.ranks))


def _judge_facts(
    job: Job, ended: Ended, facts: JobFacts, seen: Snapshot, due: Overdue | None
) -> tuple[Judgement, Snapshot]:
    """Return what all facts say, with the nodes that are lost by now, and all that is seen."""
    if lost := _list_lost(job):
        assert job.nodes is not None
        facts, seen = job.nodes.note_lost(facts, seen, lost)
    ranks = seen.ranks
    graph = WaitGraph((), (), ())
    verdict = make_verdict_skeleton(facts, ranks, OUTCOMES[ended], Ranks())
    with job.failures.of("find out why"):
        verdict, graph = judge_snapshot(facts, seen)
    proof = _find_proof(job, verdict, ended, seen, graph)
    until = _find_time_limit(job, verdict, ranks)
    now = time.monotonic()
    # A deadline is not put off for what a function was given: since when that runs nobody knows.
    is_step_over = (
        _is_step_over(job, due, verdict)
        and _find_time_limit(job, verdict, ranks, counts_given=False) <= now
    )
    if is_only_silent(job, verdict, ended, proof, is_step_over, until):
        verdict = replace(verdict, outcome="silent")
        with job.failures.of("say what limits the wait"):
            verdict = note_given_limit(verdict, ranks)
        if until > now:
            job.limit_told = (now, until)
        # Without a deadline --stall is over by now.
        stall = 0.0 if job.has_no_deadline(verdict) else job.limits.stall
        job.silent_until = max(until, now + stall)
    return Judgement(verdict, facts, ranks, graph, proof, is_step_over), seen


async def _find_next_lead(job: Job, ended: Ended) -> None:
    """Wait until somebody leads the nodes again, where the lead is lost."""
    if job.nodes is not None:
        with job.failures.of("find who leads the nodes"):
            await job.nodes.find_next_lead(ended)


def _list_lost(job: Job) -> tuple[LostNode, ...]:
    return job.nodes.list_lost() if job.nodes is not None else ()


def _find_spawned(job: Job, facts: JobFacts, seen: Snapshot) -> tuple[JobFacts, Snapshot]:
    """Return the job and its ranks, with those that a lone program has started and that never
    spoke; the program's own member stands for them from now on.
    """
    if facts.ended not in NOTHING_MOVES:
        return facts, seen
    with job.failures.of("look for ranks that were spawned"):
        from . import started_ranks as spawned

        plain = {member.rank for member in job.members if member.plain}
        facts, seen = drop_starter(facts, seen, plain)
        if job.nodes is None:
            given = spawned.read_numbers_of_started(seen.ranks)
            facts, found = spawned.take_spawned_ranks(facts, seen, given)
            if found is seen:
                facts, found = spawned.take_ranks_of_group(facts, seen)
            job.stands_for = {}
            if found is not seen:
                (program,) = seen.ranks
                job.stands_for = {one.rank: program.rank for one in found.ranks}
            seen = found
    return facts, seen


def drop_starter(
    job: JobFacts, seen: Snapshot, plain: Collection[int]
) -> tuple[JobFacts, Snapshot]:
    """Return the job and its ranks without one of the `plain` ones, whose numbers nothing tells,
    that does nothing but wait for a process that another rank is: it has started them.
    """
    from .started_ranks import ONLY_WAITS  # not at the top: few jobs come to it

    pids = {facts.pid for facts in seen.ranks}
    over = set[RankId]()
    for one in seen.single_ranks.ranks:
        own, wait = one.facts, one.wait
        below = pids & {looks[-1].pid for looks in own.children if looks}
        below |= {r.pid for r in seen.ranks if r.looks and r.looks[-1].ppid == own.pid}
        if own.rank in plain and below and wait is not None:
            # multiprocessing hears of the end of a process by a pipe, too.
            only_waits = wait.kind in ONLY_WAITS or wait.pid in below
            over |= {own.rank} if only_waits else set()
    if not over:
        return job, seen
    numbers = tuple(rank for rank in job.local_ranks if rank not in over)
    kept = [facts for facts in seen.ranks if facts.rank not in over]
    return replace(job, local_ranks=numbers), Snapshot(kept)


async def judge_with_others(
    job: Job,
    here: Judgement,
    seen: Snapshot,
    ended: Ended,
    due: Overdue | None,
    inquiry: int,
) -> Judgement | None:
    """Return the verdict on all nodes where they are joined, else this node's. None: it is too
    early for one, and this node looks again later.
    """
    answer = await _hear_others(job, here, ended, inquiry)
    if ended == "done" and job.nodes is not None and job.nodes.is_led:
        verdict = here.verdict if answer is None or answer.verdict is None else answer.verdict
        return replace(here, verdict=verdict, told_by=job.nodes.leading_host)
    if answer is None and not inquiry and _list_lost(job):
        await _find_next_lead(job, ended)
        if not (
            _list_lost(job) and here.facts.lost_nodes
        ):  # another one is heard, or none any more
            if ended in NOTHING_MOVES:  # what was seen is from before that
                look_again_later(job)
                return None
            here, seen = _judge_facts(job, ended, here.facts, seen, due)
            answer = await _hear_others(job, here, ended, inquiry)
    if answer is None and not inquiry:
        told = read_told_of_hosts(job, here, ended)
        if told is not None and told.verdict is not None:
            return _take_told_verdict(here, told.verdict)
        if told is not None or _sees_too_little(job, here.verdict, ended, here.proof):
            _hold_back(job, seen)
            return None
        return here
    if answer is None or answer.verdict is None:
        look_again_later(job)
        return None
    if _is_too_early(job, answer, ended):
        told = None if inquiry else read_told_of_hosts(job, here, ended)
        if told is not None and told.verdict is not None:
            return _take_told_verdict(here, told.verdict)
        _hold_back(job, seen)
        return None
    if answer.verdict.outcome == "silent":
        job.silent_until = max(job.silent_until, time.monotonic() + job.limits.stall)
    assert job.nodes is not None
    joint = job.nodes.take_joint()
    verdict, proof, is_over = answer.verdict, answer.proof, answer.is_over
    if joint is not None and not job.nodes.is_joint_proved:  # of that nothing ends a job
        verdict = replace(verdict, outcome=here.verdict.outcome)
        proof, is_over = here.proof, here.is_step_over
    if joint is not None:
        return Judgement(verdict, joint.facts, joint.ranks, joint.graph, proof, is_over)
    told_by = answer.lead or "another node"
    return replace(here, verdict=verdict, proof=proof, is_step_over=is_over, told_by=told_by)


def _take_told_verdict(here: Judgement, verdict: Verdict) -> Judgement:
    """Return the verdict on all hosts that the watch around the launcher has said."""
    proof = "all hosts show it" if verdict.outcome == "hang" else ""
    told_by = "the watch around the launcher"
    return replace(here, verdict=verdict, proof=proof, told_by=told_by)


def read_told_of_hosts(job: Job, here: Judgement, ended: Ended) -> ToldOfHosts | None:
    """Return what the watch around the launcher has heard of hosts that no monitor sees, since all
    ranks here can only wait for theirs; None where it has heard nothing, or not lately.
    """
    if ended not in NOTHING_MOVES or not _can_only_wait_for_others(job, here.verdict):
        return None
    from .asked_hosts import read_told

    moved = max((member.moved_at for member in job.members), default=0.0)
    each = (told for path in job.outer.paths if (told := read_told(path)) is not None)
    told = next((one for one in each if one.at > moved), None)
    if told is None or (
        told.verdict is None and time.monotonic() > told.at + 2 * OTHER_NODES_LIMIT
    ):
        return None
    return told


async def _hear_others(job: Job, here: Judgement, ended: Ended, inquiry: int) -> Judged | None:
    if job.nodes is not None:
        with job.failures.of("hear the other nodes"):
            return await job.nodes.hear(here, ended, inquiry)
    return None


async def find_who_starts(job: Job) -> tuple[str, str]:
    """Return who may start more ranks, and who starts them and waits for one; "" for nobody."""
    with job.failures.of("look whether more ranks may be started"):
        return await describe_starting(job), await describe_hearing(job)
    return "", ""


async def add_all_evidence(
    job: Job, ranks: Sequence[RankFacts], ended: Ended
) -> Sequence[RankFacts]:
    """Return the ranks, those included that have not spoken, with their logs."""
    if job.runs_script and ended in NOTHING_MOVES:
        with job.failures.of("look for ranks that have not spoken"):
            known = {facts.rank for facts in ranks}
            ranks = [*ranks, *(f for f in await find_silent_ranks(job) if f.rank not in known)]
    if ended not in ("done", "past"):
        with job.failures.of("read the logs of the ranks"):
            ranks = await _add_evidence_of_failure(job, ranks, ended)
    if ended == "crash" and job.runs_script:
        with job.failures.of("read what processes have written down that failed"):
            ranks = _add_failed_processes(job, ranks)
    if ended in (*NOTHING_MOVES, "left"):
        ranks = infer_statuses(ranks, job.place["launcher"], time.monotonic())
    return ranks


def _add_failed_processes(job: Job, ranks: Sequence[RankFacts]) -> Sequence[RankFacts]:
    """Return the ranks with the errors that they wrote down themselves, and what of their server
    has failed.
    """
    written = read_failed_targets(job.folder)
    told = [
        replace(facts, error=one.error, traceback=one.traceback)
        if facts.left and not facts.error and (one := written.get(facts.pid or 0)) is not None
        else facts
        for facts in ranks
    ]
    if job.server is None:
        return told
    server = job.server
    return [*(facts for facts in told if facts.pid not in server), *server.make_failed_facts()]


def _sees_too_little(job: Job, verdict: Verdict, ended: Ended, proof: str) -> bool:
    """Return whether a script of the user's own may only seem to hang: the watch is short of what
    it needs to see it move, or all ranks here can only wait for ranks of other nodes, not long yet.
    """
    if not job.runs_script or ended not in NOTHING_MOVES or proof:
        return False
    is_soon = (verdict.seconds.still or 0.0) < OTHER_NODES_LIMIT
    return bool(job.failures.short_of) or (_can_only_wait_for_others(job, verdict) and is_soon)


def _can_only_wait_for_others(job: Job, verdict: Verdict) -> bool:
    """Return whether none of the ranks that are seen may be to blame, and they are a part of all.
    Who waits for the store may wait for rank 0, which is late to serve it.
    """
    awaits_others = not (verdict.ranks.culprit or verdict.ranks.stuck or verdict.ranks.dead)
    awaits_others = awaits_others or bool(verdict.waits_for and verdict.waits_for.kind == "store")
    return awaits_others and len(verdict.seen_ranks) < verdict.world_size and not job.is_trial


def _is_too_early(job: Job, judged: Judged, ended: Ended) -> bool:
    """Return whether all ranks that any node sees can only wait for ranks of nodes that have not
    been heard of, and may come.
    """
    assert judged.verdict is not None
    is_lost = any(not one.seen for one in judged.verdict.nodes)
    return not is_lost and _sees_too_little(job, judged.verdict, ended, judged.proof)


def is_only_silent(
    job: Job, verdict: Verdict, ended: Ended, proof: str, is_step_over: bool, until: float
) -> bool:
    """Return whether the job stands still, and it is too early to call that a hang: nothing proves
    one, and no deadline or time limit is over; `until` (monotonic): what the wait lasts at most, as
    far as that is known.

    A start of a search is made to be ended: it waits for such a limit only if that is over within a
    few times --stall, and not where it shows the hang that the search knows; only in training,
    where an evaluation or a checkpoint may be slow, a few times --stall are waited for in any case.
    Where a walk's steps have no deadline, as in training, --stall is the limit if none is known.
    """
    if verdict.outcome != "hang" or proof or is_step_over or ended not in NOTHING_MOVES:
        return False
    left = until - time.monotonic()
    if job.is_trial and (not job.trains or is_long_still(job, verdict)):
        is_soon = 0.0 < left <= IN_DOUBT * job.limits.stall
        return is_soon and ended != "limit" and not _shows_known_hang(job, verdict)
    return left > 0.0 or job.runs_script or bool(job.find_deadlines(verdict))


def _shows_known_hang(job: Job, verdict: Verdict) -> bool:
    """Return whether a culprit stands in the hang that the search asks about."""
    known, named = job.limits.known, job.find_members(verdict.ranks.culprit)
    return known is not None and any(
        known.is_place_of(job.members, member) and known.is_shown_by(member.looks)
        for member in job.members
        if member.rank in named
    )


def is_still_believed(job: Job, named: Collection[RankId]) -> bool:
    """Return whether the wait of `named` ranks may end by the time limit that is known of it. Who
    has stood still beyond one that was known before waits again and again.
    """
    if job.limit_told is None:
        return True
    told, until = job.limit_told
    moved = any(member.moved_at > told for member in job.members if member.rank in named)
    return moved or not 0.0 < until <= time.monotonic()


def is_long_still(job: Job, verdict: Verdict) -> bool:
    """Return whether who stands still has done so for so long that a start of a search is ended
    for it, or has come to its limit.
    """
    now, limit = time.monotonic(), job.settings["limit"]
    named = {*verdict.ranks.culprit, *verdict.ranks.stuck, *verdict.ranks.waiting}
    still = seconds_still(job, now, job.find_members(named)) or 0.0
    return still > IN_DOUBT * job.limits.stall or (bool(limit) and now > job.started + limit)


def _hold_back(job: Job, seen: Snapshot) -> None:
    """Keep what was seen until more is, and say once why nothing is judged yet."""
    if job.held_back is None and not job.failures.short_of:
        here = [member.rank for member in job.members]
        wait = "waits" if len(here) == 1 else "wait"
        job.say(
            f"{begin_sentence(format_ranks(here))} {wait}, and what ranks of other nodes do is not "
            f"seen from here: judged once nothing has moved for {OTHER_NODES_LIMIT:.0f} s"
        )
    job.held_back = HeldBack(time.monotonic(), seen)
    job.note(None, events.HeldBack())
    look_again_later(job)


def find_held_back(job: Job) -> Snapshot | None:
    """Return what was seen of a job that stood still, was not judged for it, and did not move until
    it was told to end: that may be all that the verdict on all nodes has of this one, for a rank
    whose peers end at the same moment waits for them no more.
    """
    held = job.held_back
    # While it stands still it is held back anew, a --stall and a few looks later.
    if held is None or time.monotonic() > held.at + 3 * job.limits.stall:
        return None
    moved = (member for member in job.members if member.moved_at > held.at)
    return held.seen if all(m.left or was_asked_to_end(m) for m in moved) else None


def look_again_later(job: Job) -> None:
    job.closing = False
    for member in job.members:
        member.look_again_at = time.monotonic() + job.limits.stall


def _find_proof(job: Job, verdict: Verdict, ended: Ended, seen: Snapshot, graph: WaitGraph) -> str:
    """Return in words what proves that the job cannot go on by itself, "" if nothing does."""
    if verdict.outcome not in ("hang", "crash"):
        return ""
    from ..diagnosis.proof_of_hang import (  # loaded by the judgement already
        all_wait_for_peers,
        find_proof_of_hang,
    )

    with job.failures.of("look for a proof"):
        if ended == "crash" and job.runs_script and all_wait_for_peers(seen):
            return "a rank has failed, and all others wait for their peers"
        return find_proof_of_hang(verdict, seen, graph)
    return ""


async def find_later_proof(job: Job, seen: Snapshot) -> str:
    """Return in words what proves by now that a job hangs which was only silent, "" if nothing
    does. Nothing is written or said.
    """
    with job.failures.of("look for a proof"):
        seen = seen.update(await add_all_evidence(job, seen.ranks, "still"))
        facts = make_job_facts(job, "still", None, *await find_who_starts(job))
        beside = await find_job_beside(job, facts, seen)
        if beside is not None and beside.awaited:
            return ""
        facts, seen = await _find_all_ranks(job, facts, seen, beside)
        verdict, graph = judge_snapshot(facts, seen)
        return _find_proof(job, verdict, "still", seen, graph)
    return ""


def _find_time_limit(
    job: Job, verdict: Verdict, ranks: Sequence[RankFacts], counts_given: bool = True
) -> float:
    """Return until when (monotonic) the waits of the culprits last at the most, 0.0 if unknown."""
    if verdict.outcome != "hang":
        return 0.0
    if not is_still_believed(job, job.find_members(verdict.ranks.culprit)):
        return 0.0
    with job.failures.of("look for a time limit"):
        return find_time_limit(verdict, ranks, counts_given)
    return 0.0


async def _add_evidence_of_failure(
    job: Job, ranks: Sequence[RankFacts], ended: Ended
) -> list[RankFacts]:
    """Return the ranks with what only a job that went wrong is asked for."""
    from ..evidence.machine import read_machine
    from .job_facts import add_logs

    read = await add_logs(job, ranks, ended)
    if job.machine is None:
        job.machine = await read_machine(MACHINE_LIMIT, job.started, is_monitor=True)
    return read


def _is_step_over(job: Job, due: Overdue | None, verdict: Verdict) -> bool:
    """Return whether a deadline is over: of the step whose clock ran out (between two steps there
    is none), or of a culprit.
    """
    now = time.monotonic()
    if any(now > over for over in job.find_deadlines(verdict).values()):
        return True
    member = job.members.by_rank.get(due.rank) if due and due.clock == "late" else None
    return member is not None and clocks.find_deadline(job.members, member, job.limits) is not None
