"""One `attach`: looks at a job, judges it, gives the answer, and ends the job if that was asked
for: its ranks, what they started, and what started them.

Of a job on several machines it merges what each tells, and judges it as one. Two machines (two pods
of one image always) may have processes of one number, and one name of their own: the name that each
was asked by tells whose process or rank it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..base.addresses import host_of, is_loopback, port_of
from ..base.deadline import call_with_limit
from ..base.errors import UsageError
from ..base.identity import RankId, UnknownRank, name_rank, native_file
from ..base.launchers import LAUNCHERS, SRUN, find_typed_launcher
from ..base.lazy_dataclass import dataclass
from ..base.masking import mask_command
from ..base.rank_facts import LostNode
from ..base.words import format_count, join_lines, terminal_width
from ..monitor.asked_hosts import HostsAnswer, Judged, Question
from ..monitor.child_processes import start_report_maker
from ..monitor.ending import ProcessFamily
from ..report.terminal import culprit_stack
from .answer import (
    AnswerOptions,
    add_time,
    describe_ranks,
    describe_state,
    give_answer,
    hang_lines,
    moving_lines,
)
from .inquiry import EndedRanks, Inquiry, ask_nodes
from .job_looks import STILL_SPAN
from .job_search import FoundJobs, find_jobs
from .jobs import Job
from .judgement import Judgement, judge_nodes
from .node_facts import NodeFacts, Wanted, look_at_job
from .nodes import (
    Node,
    NodeAnswer,
    RemoteJob,
    add_ranks_of_idle_hosts,
    find_launched_hosts,
    find_slurm_job,
    find_strangers,
    merge_nodes,
)
from .processes import ProcessTable
from .unreadable_stacks import (
    find_denial,
    find_reason,
    find_trace_permission,
    find_unread_ranks,
    list_ways,
    unread_lines,
    way_lines,
)

_CAUSES_OF_ABSENCE = ("other-node-missing", "rank-never-started")


async def answer_for_nodes(
    job: RemoteJob,
    answers: Sequence[NodeAnswer],
    began: float,
    run_dir: Path | None,
    as_object: bool,
    ends: bool = False,
) -> tuple[int, Judgement]:
    """Say what the machines tell together, in words or as JSON; return the exit status, and what
    was found. `began` is when they were asked; `ends`: the job is to be ended after that.
    """
    found = await _judge_hosts(job, answers, began)
    status, where = await give_answer(
        found,
        AnswerOptions(run_dir, as_object, os.getpid()),
        lambda where: [
            *_lines_of_nodes(found, job, where, ends),
            *_unread_lines_of_nodes(found, answers),
        ],
    )
    if where:
        await start_report_maker(where)
    return status, found


async def _judge_hosts(job: RemoteJob, answers: Sequence[NodeAnswer], began: float) -> Judgement:
    """Return what machines tell together that were asked at `began`."""
    known = await _resolve([one.node.name for one in answers if one.facts is None])
    return add_time(judge_answers(job, answers, time.monotonic(), known), began)


_HOSTS_LIMIT = 20.0  # seconds for each host


async def ask_launched_hosts(question: Question) -> HostsAnswer:
    """Return what the hosts tell together on which a launcher has started ranks that nobody
    watches.
    """
    if question.slurm:
        job = await find_slurm_job(question.slurm, None, {})
    else:
        job = find_launched_hosts(question.clients, question.own, question.only)
    job = replace(job, command=question.command)
    began = time.monotonic()
    if not question.may_end:
        return await _hear_hosts(job, await ask_nodes(job, _HOSTS_LIMIT), began)
    inquiry = Inquiry(job, _HOSTS_LIMIT)
    found = HostsAnswer()
    try:
        found = await _hear_hosts(job, await inquiry.ask(), began)
    finally:
        holds = found.judged is not None
        if not holds:
            await inquiry.close()
    own = job.nodes[0] if question.own else None
    return replace(found, held=HeldInquiry(inquiry, own)) if holds else found


class HeldInquiry:
    """Hosts that have answered, and wait for what is to be done with their ranks."""

    def __init__(self, inquiry: Inquiry, own: Node | None) -> None:
        """`own` is this machine, where it was asked too: its ranks are ended with the command."""
        self._inquiry, self._own = inquiry, own

    async def end_ranks(self) -> list[str]:
        """End the ranks that were seen there; return what each host says, in sentences."""
        return [_word_end(one) for one in await self._inquiry.end_ranks(self._own)]

    async def let_go(self) -> None:
        """Leave them, and end all connections. May be called twice."""
        await self._inquiry.close()


def _word_end(one: EndedRanks) -> str:
    pids = ", ".join(map(str, one.ended)) or "nobody, they were gone"
    left = ", ".join(map(str, one.left))
    there = f"; still there, in the kernel (state D): {left}" if left else ""
    return f"{one.node.name}: {one.trouble or f'ended {pids}{there}'}"


async def _hear_hosts(job: RemoteJob, answers: Sequence[NodeAnswer], began: float) -> HostsAnswer:
    if not any(one.facts and one.facts.ranks and not _only_helps(one.facts) for one in answers):
        idle = [one.node.name for one in answers if one.has_no_job or one.facts]
        silent = [one for one in answers if one.facts is None and not one.has_no_job]
        troubles = [f"{one.node.name} is not seen: {one.trouble}" for one in silent]
        said = [f"no rank of the job runs on {', '.join(idle)}"] if idle else []
        trouble = "; ".join([*said, *troubles[:2]]) or "no rank runs there"
        starts_nobody = (*said, *troubles) if idle else ()
        return HostsAnswer(
            trouble=trouble, starts_nobody=starts_nobody, silent=name_silent_hosts(silent)
        )
    found = await _judge_hosts(job, answers, began)
    if found.moving:
        moves = [facts for facts in found.ranks if facts.rank in found.moving]
        what = f": {moves[0].moved}" if moves and moves[0].moved else ""
        return HostsAnswer(goes_on=f"rank {found.moving[0]} is at work{what}")
    if found.verdict.outcome == "slow":
        return HostsAnswer(goes_on="a rank computes")
    return HostsAnswer(Judged(found.verdict, found.facts, found.ranks, found.graph))


def _only_helps(node: NodeFacts) -> bool:
    """Return whether all that runs there is what starts ranks for a launcher elsewhere (orted)."""
    helper = os.path.basename(node.command[0]) if node.command else ""
    return node.launcher is not None and any(helper in one.helpers for one in LAUNCHERS)


_SILENT = re.compile(r"no answer within|timed out|No route|refused|is down|reset|closed")


def name_silent_hosts(answers: Sequence[NodeAnswer]) -> dict[str, str]:
    """Return the hosts among these that did not answer, and what came instead; not those that
    refuse us for what we are: they may well let a launcher in.
    """
    silent = (one for one in answers if one.facts is None and not one.has_no_job)
    return {one.node.name: one.trouble for one in silent if _SILENT.search(one.trouble)}


_ASK_LIMIT = 240.0  # seconds for a person to say whether the ranks are to be ended


async def end_ranks_of_nodes(
    inquiry: Inquiry, answers: Sequence[NodeAnswer], found: Judgement, sure: bool
) -> None:
    """End the ranks that were seen, and what belongs to them, once a person has said so, or is
    `sure`; say what came of it.
    """
    if found.moving:
        _print_progress("It moves, so it was not ended")
        return
    seen = [one for one in answers if one.facts is not None]
    ranks = format_count(len([r for r in found.ranks if r.pid is not None]), "rank")
    if not sure and not await _ask_to_end(f"{ranks} on {format_count(len(seen), 'machine')}"):
        return
    for one in await inquiry.end_ranks():
        name = one.node.name
        ended = one.trouble or f"ended {', '.join(map(str, one.ended)) or 'nobody'}"
        _print_progress(f"{name}: {ended}")
        if one.left:
            _print_progress(
                f"{name}: still there, in the kernel (state D): {', '.join(map(str, one.left))}"
            )
    for name in (one.node.name for one in answers if one.facts is None):
        _print_progress(f"{name}: not seen, so nothing was ended there")


async def _ask_to_end(what: str) -> bool:
    """Return whether a person at the terminal wants it."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        _print_progress("Nothing was ended: there is no terminal to ask at. --yes ends it unasked")
        return False
    print(f"End {what}, and what belongs to them? [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        said = await call_with_limit(sys.stdin.readline, limit=_ASK_LIMIT)
    except TimeoutError:
        said = ""
    if said.strip().lower() in ("y", "yes"):
        return True
    _print_progress("Nothing was ended")
    return False


def judge_answers(
    job: RemoteJob,
    answers: Sequence[NodeAnswer],
    now: float,
    addresses: Mapping[str, Collection[str]] | None = None,
) -> Judgement:
    """Return the judgement on what the machines that answered tell. `addresses` are those of
    machines that refused to be asked, as far as they are known.
    """
    seen = [_facts_by_asked_name(one) for one in answers if one.facts is not None]
    strangers = find_strangers(seen)
    nodes = merge_nodes([one for one in seen if one not in strangers])
    nodes = [replace(node, command=_find_command(job, node)) for node in nodes]
    unseen, known = [a for a in answers if not a.facts and not a.has_no_job], addresses or {}
    # To where nobody has a connection no rank has come yet, or it is lost.
    are_left = all(_is_left(nodes, known.get(one.node.name, ())) for one in unseen)
    notes = [f"{one.node.name} is not seen: {one.trouble}" for one in unseen]
    idle = [one.node.name for one in answers if not one.facts and one.has_no_job]
    absent = {one.node.name: f"{one.node.name} {one.trouble}" for one in job.absent}
    notes += [absent.get(name, f"nothing of the job runs on {name}") for name in idle]
    notes += [f"{one.node.name}: {one.node.said}" for one in answers if one.facts and one.node.said]
    notes += map(_word_stranger, strangers)
    idle += [one.host for one in strangers]
    lost = list_lost_nodes(nodes, unseen, addresses or {})
    start_nobody = bool(nodes) and all(node.launcher is not None for node in nodes)
    silent = name_silent_hosts(unseen) if start_nobody else {}
    found = judge_nodes(nodes, notes, now, lost, silent)
    if idle and not unseen and not found.moving:
        missed = judge_nodes(add_ranks_of_idle_hosts(nodes, idle), notes, now)
        # Who stands still by itself is to blame, whoever has ended before, perhaps well.
        found = found if missed.verdict.ranks.stuck else missed
    verdict = found.verdict
    # Who is absent here may be on a machine that could not be asked.
    may_be_there = bool(unseen) and not are_left
    if may_be_there and verdict.cause is not None and verdict.cause.id in _CAUSES_OF_ABSENCE:
        verdict = replace(verdict, cause=None)
    ranks = verdict.ranks
    is_absent = {*ranks.culprit} <= {*ranks.never_started}
    if (unseen or idle) and verdict.outcome == "hang" and is_absent:
        verdict = replace(verdict, outcome="silent")
    return replace(found, verdict=verdict)


def _word_stranger(node: NodeFacts) -> str:
    """Return what is said of a process that is of no rank of the job."""
    pid, words = node.ranks[0].pid, join_lines(" ".join(mask_command(node.command)))[:80]
    ports = {port_of(s.local) for s in node.ranks[0].looks[-1].sockets if s.state == "LISTEN"}
    served = f", listens at port {', '.join(sorted(ports)[:3])}" if ports else ""
    return (
        f"nothing of the job runs on {node.host}: process {pid} ({words}) has no rank's number, is "
        f"older than the ranks{served}"
    )


_RESOLVE_LIMIT = 3.0  # seconds
_IS_AWAY = re.compile(r"No route to host|Host is down|(?:Connection|Operation) timed out")


def list_lost_nodes(
    nodes: Sequence[NodeFacts],
    unseen: Sequence[NodeAnswer],
    addresses: Mapping[str, Collection[str]],
) -> list[LostNode]:
    """Return the machine that the network does not reach, with the ranks of the job that are on
    none of the others: those are on it; or that refuses to be asked, by its `addresses`, and to
    which no rank has a connection any more: it may have started anew. [] where several did not
    answer, or it did not for another reason, as a password, or where no rank is missing.
    """
    away = [
        one
        for one in unseen
        if _IS_AWAY.search(one.trouble)
        or (_is_refused(one) and _is_left(nodes, addresses.get(one.node.name, ())))
    ]
    known = {facts.rank for node in nodes for facts in node.ranks}
    world = max((node.world for node in nodes), default=0)
    missing = tuple(rank for rank in range(world) if rank not in known)
    if len(away) != 1 or len(unseen) != 1 or not missing or len(known) + len(missing) > world:
        return []
    return [LostNode(away[0].node.name, missing, None, "")]


def _is_refused(one: NodeAnswer) -> bool:
    return one.facts is None and "Connection refused" in one.trouble


def _is_left(nodes: Sequence[NodeFacts], addresses: Collection[str]) -> bool:
    """Return whether ranks have connections to other machines, and none to these addresses."""
    looks = [looks[-1] for node in nodes for r in node.ranks for looks in (r.looks, *r.children)]
    peers = {
        host_of(one.peer).removeprefix("::ffff:")
        for look in looks
        for one in look.sockets
        if one.state == "ESTABLISHED" and one.family.startswith("tcp")
    }
    there = {one for one in peers if one and not is_loopback(one)}
    return bool(there and addresses) and there.isdisjoint(addresses)


async def _resolve(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the addresses of these machines, as far as somebody says them in time."""
    found = {}
    for name in names:
        host = name.rpartition("@")[2]
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            known = await call_with_limit(socket.getaddrinfo, host, None, limit=_RESOLVE_LIMIT)
            found[name] = [str(one[4][0]) for one in known]
    return found


def _facts_by_asked_name(one: NodeAnswer) -> NodeFacts:
    """Return a machine's facts with the name that it was asked by: that of a host may be the same
    on all, and the id of a container says nothing.
    """
    node, name = one.facts, one.node.name
    assert node is not None

    def named(rank: RankId) -> RankId:
        return replace(rank, host=name) if isinstance(rank, UnknownRank) else rank

    return replace(
        node,
        host=name,
        ranks=tuple(replace(r, rank=named(r.rank), host=name) for r in node.ranks),
        moving=tuple(map(named, node.moving)),
        busy=tuple(map(named, node.busy)),
        quiet=tuple(map(named, node.quiet)),
    )


def _find_command(job: RemoteJob, node: NodeFacts) -> tuple[str, ...]:
    """Return the command that a person typed: of Slurm's job with the srun in front of it, as far
    as its nodes show it, for that runs on none of them.
    """
    words, nodes = job.command or node.command, len(job.nodes)
    name = os.path.basename(words[0]) if words else ""
    if job.command or not (job.is_slurms and words) or name in SRUN.clients:
        return words
    tasks = nodes if find_typed_launcher(name).is_on_each_node else max(node.world, nodes)
    return ("srun", f"--nodes={nodes}", f"--ntasks={tasks}", *words)


def _lines_of_nodes(found: Judgement, job: RemoteJob, where: str, ends: bool) -> list[str]:
    width = terminal_width()
    if found.only_moves:
        return moving_lines(found, width)
    state = f"still running, untouched; end it: {job.end_it}"
    if ends:
        state = "still running; to be ended, once that is confirmed"
    lines = hang_lines(found, where, state, width, again=job.is_slurms)
    notes = [f"note      {note}" for note in found.facts.notes]
    lines += [
        f"native    all threads of {name_rank(one.rank)}: "
        f"{os.path.join(where, native_file(one.rank))}"
        for one in found.ranks
        if one.native_threads and where
    ]
    stack = culprit_stack(found.ranks, found.verdict, found.graph) if width is None else []
    return [*lines, *notes, *stack]


def _unread_lines_of_nodes(found: Judgement, answers: Sequence[NodeAnswer]) -> list[str]:
    """Return what is known of ranks whose stacks could not be read where they are."""
    downloads = [file for one in answers if one.facts for file in one.facts.downloads]
    return [
        line
        for facts in find_unread_ranks(found.ranks, found.verdict.ranks.culprit)
        for line in unread_lines(facts, find_reason(facts, "not permitted"), downloads)
    ]


_UNUSED_MARK = "HANGBISECT_ATTACHED"  # no process of a job that we only looked at has a mark


def end_job(job: Job, processes: ProcessTable) -> tuple[list[int], list[int]]:
    """End the family, all at once; return who was ended, and who is still there, in the kernel. The
    kernel of a notebook is spared, and so is a container's first process: no signal from inside
    ends it (pid_namespaces(7)), and a launcher ends when its ranks have. `processes` are those
    among which the job was found: who has one of their pids since then is let alone.
    """
    family = ProcessFamily(str(os.getpid()), _UNUSED_MARK)
    for pid in sorted(job.pids - {job.notebook, 1}):
        if pid in processes:
            family.add_rank(pid, processes[pid].started)
    family.refresh()
    before = family.living()
    left = family.end_for_good()
    return [pid for pid in before if pid not in left], left


@dataclass(frozen=True)
class AttachRequest:
    """What is asked for."""

    span: float = STILL_SPAN  # seconds
    run_dir: Path | None = None
    ends: bool = False  # end the job after that
    answers: bool = False  # the verdict as JSON
    wanted: Wanted = Wanted()


async def attach_to_job(found: FoundJobs, job: Job, request: AttachRequest) -> int:
    """Look at a job, say whether it moves, and if not, why; return the exit status."""
    began = time.monotonic()
    _introduce(job)
    found, job, node = await look_at_ranks(found, job, request.span, request.wanted)
    judgement = add_time(judge_nodes([node], _note_watch(job), time.monotonic()), began)
    unread = _unread_lines(judgement, node, found.processes)
    status, where = await give_answer(
        judgement,
        AnswerOptions(request.run_dir, request.answers, job.pid),
        lambda where: _answer_lines(judgement, job, where, unread, request.ends),
        unread,
    )
    if request.ends:
        await _end_job(job, found.processes, bool(judgement.moving))
    if where:
        await start_report_maker(where)
    return status


async def look_at_ranks(
    found: FoundJobs, job: Job, span: float, wanted: Wanted | None = None
) -> tuple[FoundJobs, Job, NodeFacts]:
    """Return the job with what is seen of it. A launcher that had started nobody, and has by now,
    is looked at once more, with its ranks.
    """
    node = await look_at_job(job, found.processes, span, wanted)
    if job.ranks:
        return found, job, node
    with contextlib.suppress(UsageError):  # it has ended
        later = await find_jobs([job.pid])
        (now,) = later.jobs
        if now.ranks and now.launchers:
            _print_progress(f"{job.pid} has started ranks by now: looking at them")
            return later, now, await look_at_job(now, later.processes, span, wanted)
    return found, job, node


def _introduce(job: Job) -> None:
    ranks = describe_ranks([rank.number for rank in job.ranks], job.world)
    _print_progress(
        f"Looking at {job.pid} ({ranks}): {join_lines(' '.join(mask_command(job.command)))[:120]}"
    )
    if not job.whole:
        _print_progress(
            "Its other ranks are to be elsewhere: --slurm, --hosts or --kubernetes asks them too"
        )
    if job.watched is not None:
        where = _format_folder(job.watched)
        _print_progress(f"It is watched by hangbisect since its start{where}: it tells its steps")


def _note_watch(job: Job) -> list[str]:
    if job.watched is None:
        return []
    return [f"this job is watched by hangbisect since its start{_format_folder(job.watched)}"]


def _format_folder(folder: str) -> str:
    return f", in {folder}" if folder else ""


def _answer_lines(
    found: Judgement, job: Job, where: str, unread: Sequence[str], ends: bool
) -> list[str]:
    width = terminal_width()
    if found.only_moves:
        return [*moving_lines(found, width), *unread]
    state = describe_state(job.pid, job.notebook, job.watched is not None, ends)
    lines = hang_lines(found, where, state, width, job.has_one_command)
    lines += [
        f"native    all threads of {name_rank(one.rank)}: "
        f"{os.path.join(where, native_file(one.rank))}"
        for one in found.ranks
        if one.native_threads and where
    ]
    stack = culprit_stack(found.ranks, found.verdict, found.graph) if width is None else []
    return [*lines, *unread, *(() if unread else stack)]


def _unread_lines(found: Judgement, node: NodeFacts, processes: ProcessTable) -> list[str]:
    """Return what is known of ranks whose stacks cannot be read, and the ways to one."""
    ranks = find_unread_ranks(found.ranks, found.verdict.ranks.culprit)
    if not ranks:
        return []
    own = find_trace_permission()
    lines: list[str] = []
    ways: list[str] = []
    for facts in ranks:
        one = processes.get(facts.pid or 0)
        uid = own.uid if one is None else one.uid
        why = find_reason(facts, find_denial(own, uid))
        who = "the launcher" if node.launcher == facts.pid else ""
        lines += unread_lines(facts, why, node.downloads, who)
        environ = (one.environ if one else None) or {}
        ways = ways or (list_ways(why, own, facts.pid or 0, environ, uid) if why else [])
    return [*lines, *way_lines(ways)]


async def _end_job(job: Job, processes: ProcessTable, moves: bool) -> None:
    if moves:
        _print_progress("It moves, so it was not ended")
        return
    ended, left = await asyncio.to_thread(end_job, job, processes)
    _print_progress(f"Ended: {', '.join(map(str, ended)) or 'nobody, they were gone'}")
    if left:
        _print_progress(f"Still there, in the kernel (state D): {', '.join(map(str, left))}")
    if job.notebook is not None:
        _print_progress(f"The notebook's kernel ({job.notebook}) was left alone")


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
