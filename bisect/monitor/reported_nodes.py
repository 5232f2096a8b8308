"""The verdict on all nodes of a job, by what each has told the monitor that leads them."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.node_differences import find_node_differences
from ..base.node_record import NodeClock, make_node_record
from ..base.rank_facts import ClockOffset, LongestStep, LostNode, RankFacts
from ..base.variables import TOKEN_VARIABLE
from ..base.verdict_facts import NodeSeen, Verdict
from ..base.words import format_ranks, format_seconds
from ..link.messages import Digest, Judged, RankWord, Report
from ..link.peers import NodeAnswer, Unseen
from .lead_address import find_unheard_nodes
from .monitor_process import call_in_thread

if TYPE_CHECKING:
    from ..base.rank_state import RankState
    from ..collect.nodes import JointJudgement
    from ..link.lead import Lead
    from .job import Job
    from .judgement import Judgement

TOLD_LIMIT = 4.0  # seconds for nodes that are ordered nothing to come to verdicts of their own
UNPROVED = f"what other nodes told is not proved to be of this job (no {TOKEN_VARIABLE})"
NOT_REACHED = "it was never heard, and the network does not reach it"
NOT_COME = "Slurm has it for this job, and it was never heard"


async def judge_reported_nodes(
    lead: str,
    answers: Sequence[NodeAnswer],
    unseen: Sequence[Unseen],
    asker: NodeAnswer,
    ports: Sequence[int] = (),
) -> tuple[Judged, JointJudgement | None]:
    """Return what the nodes are told, and what it rests on: the verdict on all of them, or who is
    at work. `lead` is the name of the node that judges; at `ports` it is asked whether hosts that
    no node has told of are reached.
    """
    if not unseen and all(one.report.has_ended_well for one in answers):
        return Judged(0, join_good_ends(answers)), None
    gc.disable()  # of 100,000 ranks it takes a third less time
    try:
        return await _judge_answers(lead, answers, unseen, asker, ports)
    finally:
        gc.enable()


async def _judge_answers(
    lead: str,
    answers: Sequence[NodeAnswer],
    unseen: Sequence[Unseen],
    asker: NodeAnswer,
    ports: Sequence[int],
) -> tuple[Judged, JointJudgement | None]:
    from ..collect.nodes import (
        JointNodes,
        RecordedNode,
        find_who_goes_on,
        is_paused,
        judge_nodes,
    )
    from ..diagnosis.proof_of_hang import find_proof_of_hang

    order = sorted(answers, key=lambda one: (one.join.node != lead, one.join.node))
    nodes = [RecordedNode(a.report.record, a.facts, a.report.verdict, a.address) for a in order]
    together = JointNodes(nodes)
    ended = asker.report.ended
    if any(one.report.ended == "crash" for one in answers):  # while another one asked
        ended = "crash"
    if ended in ("still", "late"):
        at_work = await call_in_thread(find_who_goes_on, together)
        if at_work:
            return Judged(0, goes_on=at_work), None
    unheard = await find_unheard_nodes(together, ports) if not unseen else []
    lost = [*map(describe_as_lost, unseen), *unheard]
    still = ended if ended in ("still", "late", "busy", "left") else None
    clocks = [
        ClockOffset(a.join.host, a.clock_ahead, a.clock_error)
        for a in order
        if a.clock_ahead is not None
    ]
    joint = await call_in_thread(judge_nodes, together, still, lost, clocks)
    seen = together.seen.update(joint.ranks)
    proof = find_proof_of_hang(joint.verdict, seen, joint.graph)
    proof = proof or next((a.report.proof for a in order if a.report.proof), "")
    proof = "" if is_paused(nodes) else proof
    verdict = add_nodes(joint.verdict, order, unseen)
    never_heard = [NodeSeen(one.host, False, one.ranks, NOT_REACHED) for one in unheard]
    never_heard += [NodeSeen(host, False, (), NOT_COME) for host in joint.facts.absent_hosts]
    verdict = replace(verdict, nodes=(*verdict.nodes, *never_heard))
    is_over = any(one.report.is_over for one in order)
    return Judged(0, verdict, proof=proof, is_over=is_over), replace(joint, verdict=verdict)


async def judge_told_nodes(
    node: str, leads: Sequence[Lead], ports: Sequence[int]
) -> tuple[Judged, JointJudgement] | None:
    """Return the verdict on this node and all that have told these leads what they know by
    themselves, and what it rests on; None where none other has, or one is at work. Nothing proves
    that they are nodes of this job.
    """
    until = time.monotonic() + TOLD_LIMIT
    while time.monotonic() < until and any(
        len(lead.list_told()) < lead.count_heard() for lead in leads
    ):
        await asyncio.sleep(0.1)
    answers = [answer for lead in leads for answer in await lead.read_told()]
    own = next((one for one in answers if one.join.node == node), None)
    if own is None or len(answers) < 2:
        return None
    judged, joint = await judge_reported_nodes(node, answers, [], own, ports)
    if judged.verdict is None or joint is None:
        return None
    verdict = replace(judged.verdict, notes=(*judged.verdict.notes, UNPROVED))
    return replace(judged, verdict=verdict), replace(joint, verdict=verdict)


def make_report(
    here: Judgement, host: str, ranks: Sequence[int], inquiry: int, asks: bool
) -> tuple[Report, list[RankFacts]]:
    """Return what a node with these ranks tells of its own verdict, and the ranks with their
    looks.
    """
    from ..collect.nodes import drop_lost

    facts = replace(drop_lost(here.facts), local_ranks=tuple(ranks))
    own = [one for one in here.ranks if one.rank in ranks]
    clock = NodeClock(time.monotonic(), time.time())
    report = Report(
        inquiry=inquiry,
        record=make_node_record(host, facts, own, clock),
        verdict=here.verdict,
        ended=facts.ended,
        looks=0,
        proof=here.proof,
        is_over=here.is_step_over,
        asks=asks,
    )
    return report, own


def make_digest(job: Job, ranks: Collection[int]) -> Digest:
    """Return where these ranks are, which are those of this node."""
    now = time.monotonic()
    titles = {} if job.runs_script else {one.number: one.title for one in job.table}
    members = [member for member in job.members if member.rank in ranks]
    return Digest(tuple(_word_of(member, titles, now) for member in members))


def _word_of(member: RankState, titles: dict[int, str], now: float) -> RankWord:
    doing = member.doing[-1] if member.doing else "its script"
    step = f"{member.step} {titles[member.step]}" if member.step in titles else doing
    failed = bool(member.error or member.status)
    state = "failed" if failed else "left" if member.has_left else "held" if member.held_at else ""
    waits = format_ranks(member.awaits)
    still = round(max(0.0, now - member.moved_at), 1) if member.moved_at else 0.0
    return RankWord(
        member.rank,
        state or "runs",  # type: ignore[arg-type]  # one of the words of RankState
        step,
        member.phase,
        still,
        waits,
    )


def join_good_ends(answers: Sequence[NodeAnswer]) -> Verdict:
    """Return the verdict on nodes of which each has ended well: that of the first, with the ranks
    of all.
    """
    order = sorted(answers, key=lambda one: one.join.ranks)
    verdicts = [one.report.verdict for one in order]
    first = verdicts[0]
    verdict = replace(
        first,
        seen_ranks=tuple(sorted({rank for one in verdicts for rank in one.seen_ranks})),
        seconds=replace(first.seconds, total=max(one.seconds.total for one in verdicts)),
        slow_steps=tuple(dict.fromkeys(step for one in verdicts for step in one.slow_steps)),
        barrier_opened=next((one.barrier_opened for one in verdicts if one.barrier_opened), None),
        notes=tuple(dict.fromkeys(note for one in verdicts for note in one.notes)),
        said=tuple(dict.fromkeys(sentence for one in verdicts for sentence in one.said)),
        differences=find_node_differences(one.report.record for one in order),
    )
    return add_nodes(verdict, order, [])


def find_longest_step(answers: Sequence[NodeAnswer]) -> LongestStep | None:
    """Return which step took longest on any of these nodes, and where; None where none tells."""
    steps = [
        replace(one.report.longest, words=f"{one.report.longest.words} on {one.join.host}")
        for one in answers
        if one.report.longest is not None
    ]
    return max(steps, key=lambda step: step.seconds, default=None)


def describe_as_lost(one: Unseen) -> LostNode:
    silent = round(time.monotonic() - one.since, 1)
    return LostNode(one.join.host, one.join.ranks, silent, one.last_word, one.address)


def add_nodes(verdict: Verdict, answers: Sequence[NodeAnswer], unseen: Sequence[Unseen]) -> Verdict:
    """Return the verdict with each node that is known of, and whether there may be more."""
    seen = [
        NodeSeen(
            *(a.join.host, True, a.join.ranks),
            clock_error_ms=_in_milliseconds(a.clock_error),
            clock_ahead_ms=a.clock_ahead and _in_milliseconds(a.clock_ahead),
        )
        for a in answers
    ]
    silent = [NodeSeen(u.join.host, False, u.join.ranks, _say_why(u)) for u in unseen]
    known = {rank for one in (*seen, *silent) for rank in one.ranks}
    absent = len(known) < verdict.world_size
    nodes = sorted((*seen, *silent), key=lambda one: (one.ranks, one.name))
    return replace(verdict, nodes=tuple(nodes), partial=bool(unseen) or absent)


def _in_milliseconds(seconds: float) -> float | None:
    return None if seconds == float("inf") else round(seconds * 1000, 3)


def _say_why(one: Unseen) -> str:
    silent = format_seconds(time.monotonic() - one.since)
    word = f"; its last word: {one.last_word}" if one.last_word else ""
    return f"{one.why}, heard last {silent} before{word}"
