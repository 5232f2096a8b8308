"""The nodes of a job, judged as one from what the monitor of each has written. Pure: who reads the
files is above.

Each monitor sees its own ranks. The one that has the culprit may not know that anybody waits for
it, and those that have none believe that another node is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from ..base.addresses import is_loopback
from ..base.errors import UsageError
from ..base.host_names import read_host_names
from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.node_differences import find_node_differences
from ..base.node_record import NodeClock, NodeRecord
from ..base.outcomes import ENDED_ON_REQUEST, STANDS_STILL
from ..base.process_facts import Look
from ..base.rank_facts import (
    ClockOffset,
    Ended,
    JobFacts,
    LostNode,
    MachineFacts,
    RankFacts,
    fill_in_same_looks,
    gather_machines,
    mark_twin,
    shift_gpu_errors,
)
from ..base.verdict_facts import Verdict
from ..base.words import format_ranks, format_seconds
from ..diagnosis.case import make_unseen_rank
from ..diagnosis.other_nodes import describe_absent_hosts, describe_clocks_apart
from ..diagnosis.proof_of_hang import find_proof_of_hang
from ..diagnosis.rank_connections import note_exchanges
from ..diagnosis.snapshot import Snapshot
from ..diagnosis.verdict import judge_snapshot
from ..diagnosis.wait_graph import WaitGraph
from .node_connections import (
    UnheardHost,
    connect_nodes,
    list_unheard_hosts,
    map_addresses,
    mark_lost_ends,
)


@dataclass(frozen=True)
class RecordedNode:
    """What one node has left of a job."""

    record: NodeRecord
    ranks: tuple[RankFacts, ...]  # with their looks; () where these could not be read
    verdict: Verdict
    address: str = ""  # by which it reached the node that judges, where it did


@dataclass(frozen=True)
class JointJudgement:
    """The verdict on all nodes, and what it rests on. Times are those of the first node's clock."""

    verdict: Verdict
    facts: JobFacts
    ranks: tuple[RankFacts, ...]
    graph: WaitGraph


def judge_recorded_nodes(nodes: Sequence[RecordedNode]) -> JointJudgement | None:
    """Return the verdict on what several nodes wrote of one attempt, None where there are not
    several.
    """
    if len(nodes) < 2:
        return None
    joint = JointNodes(nodes)
    found = judge_nodes(joint, lost=_list_unseen(nodes))
    better = _find_verdict_on_more(joint.judged) or _find_verdict_on_a_launcher(nodes)
    return found if better is None else replace(found, verdict=better)


def _find_verdict_on_more(nodes: Sequence[RecordedNode]) -> Verdict | None:
    """Return the verdict that was given on all nodes together, where one of those that were seen
    then is not among these: it has left nothing that can be read by now, as one whose rank was
    started again, or its rank has failed after that; None where all are.
    """
    here = {facts.rank for one in nodes for facts in one.record.ranks}
    here |= {rank for one in nodes for rank in one.record.job.local_ranks}
    for one in nodes:
        seen = {rank for each in one.verdict.nodes if each.seen for rank in each.ranks}
        if here < seen and one.verdict.outcome not in ("ok", "interrupted"):
            return one.verdict
    return None


def _find_verdict_on_a_launcher(nodes: Sequence[RecordedNode]) -> Verdict | None:
    """Return the verdict on a launcher that waits on, where all ranks of each other node have ended
    well; None for any other.
    """
    failed = [one.verdict for one in nodes if one.verdict.outcome not in ("ok", "interrupted")]
    are_over = failed and all(one.component == "launcher" for one in failed)
    return failed[0] if are_over and len(failed) < len(nodes) else None


def _list_unseen(nodes: Sequence[RecordedNode]) -> list[LostNode]:
    """Return the nodes that were seen no more when these judged, and that have left nothing."""
    here = {one.record.host for one in nodes}
    told = [lost for one in nodes for lost in one.record.job.lost_nodes]
    told += [
        LostNode(each.name, each.ranks, None, "")
        for one in nodes
        for each in one.verdict.nodes
        if not each.seen
    ]
    by_host = {lost.host: lost for lost in reversed(told)}
    return [lost for host, lost in sorted(by_host.items()) if host not in here]


class JointNodes:
    """Several nodes as one: their ranks on the clock of the first, and the connections between
    them, for whatever is asked of it.
    """

    def __init__(self, nodes: Sequence[RecordedNode]) -> None:
        """Nothing is put together before it is asked for."""
        self.nodes = nodes
        self.ended, judged, self.later = _choose_nodes(nodes)
        # What the nodes that are judged say, and who of them was told to end.
        self.judged, self.told = _forget_who_was_told_to_end(judged)

    @cached_property
    def _joined(self) -> tuple[list[RankFacts], list[str]]:
        return _join_ranks(self.judged, self.nodes[0].record.clock)

    @property
    def ranks(self) -> list[RankFacts]:
        """The ranks, those too that never came to theirs."""
        return self._joined[0]

    @property
    def doubles(self) -> list[str]:
        """In words which ranks are left out, as an earlier node has them too."""
        return self._joined[1]

    @cached_property
    def connected(self) -> list[RankFacts]:
        """The ranks, with who has the other ends of their connections."""
        return connect_nodes(self.ranks, _list_addresses(self.judged))

    @cached_property
    def unheard(self) -> tuple[tuple[RankId, ...], list[UnheardHost]]:
        """The ranks of the job of which no node has told, and the hosts where they may be."""
        known = {facts.rank for one in self.nodes for facts in one.record.ranks}
        known |= {rank for one in self.nodes for rank in one.record.job.local_ranks}
        size = max(one.record.job.world_size for one in self.nodes)
        absent = tuple(rank for rank in range(size) if rank not in known)
        if not absent or len(known) + len(absent) > size:
            return (), []
        told = [facts for one in self.nodes for facts in one.ranks]
        return absent, list_unheard_hosts(self.connected, told, _list_addresses(self.nodes))

    @cached_property
    def seen(self) -> Snapshot:
        """The same; one whose connection has carried something over the looks has moved."""
        return Snapshot(note_exchanges(self.connected))


def judge_nodes(
    joint: JointNodes,
    still: Ended | None = None,
    lost: Sequence[LostNode] = (),
    clocks: Sequence[ClockOffset] = (),
) -> JointJudgement:
    """Return the verdict on what nodes tell of one attempt. `still`: how it stands still, where the
    node whose clock ran out says so; `lost`: nodes that were there and tell nothing any more;
    `clocks`: by how much the wall clocks of nodes are apart, where that is known.
    """
    nodes, judged, ranks = joint.nodes, joint.judged, joint.ranks
    ended = joint.ended or still or _choose_end(ranks, judged)
    facts = _join_facts(judged, nodes[0].record.clock, ended)
    known = {r.rank for r in ranks}
    facts = replace(facts, local_ranks=tuple(sorted(known)), lost_nodes=tuple(lost))
    facts = replace(facts, clocks=tuple(clocks), absent_hosts=_list_absent_hosts(joint, lost))
    apart = describe_clocks_apart(facts.clocks)
    notes = (
        *facts.notes,
        *([apart] if apart else []),
        *joint.doubles,
        *map(_note_later_end, joint.later),
        *joint.told,
        *_note_absent(facts, nodes),
        *describe_lost(lost),
    )
    facts = replace(facts, notes=notes)
    seen = joint.seen.update(mark_lost_ends(joint.connected, [*lost, *_list_untold(joint)]))
    verdict, graph = judge_snapshot(facts, seen)
    if verdict.outcome == "hang" and not _is_hang(verdict, seen, graph, judged):
        verdict = replace(verdict, outcome="silent")
    differences = find_node_differences(one.record for one in nodes)
    verdict = replace(_add_figures(verdict, judged), differences=differences)
    return JointJudgement(verdict, facts, seen.ranks, graph)


def _list_untold(joint: JointNodes) -> list[LostNode]:
    """Return the hosts where ranks of the job may be of which no node has told, by their addresses:
    who waits there waits for one of these, whatever its own protocol is.
    """
    ranks, hosts = joint.unheard
    return [LostNode(one.address, ranks, None, "", one.address) for one in hosts]


def find_who_goes_on(joint: JointNodes) -> str:
    """Return in words which rank of any node is at work, where none hangs whatever it does; "" if
    one hangs, or the job has come to an end on a node.
    """
    from .looks import classify_ranks  # takes looks as well: who reads files needs none of that

    if joint.ended is not None:
        return ""
    seen = joint.seen
    classes = classify_ranks(seen.ranks, seen.waits)
    if classes.hung:
        return ""
    at_work = [facts for facts in seen.ranks if facts.rank in classes.moving | classes.busy]
    first = next(iter(at_work), None)
    if first is None:
        return "ranks wait for ones that go on"
    return f"rank {first.rank} on {first.host} is at work ({first.moved or 'it computes'})"


def _is_hang(
    verdict: Verdict, seen: Snapshot, graph: WaitGraph, nodes: Sequence[RecordedNode]
) -> bool:
    """Return whether a node called it a hang, as its step's deadline was over, or all together
    prove one. Who has paused a node may let it go on.
    """
    if is_paused(nodes):
        return False
    said = any(one.verdict.outcome == "hang" for one in nodes)
    return said or bool(find_proof_of_hang(verdict, seen, graph))


def is_paused(nodes: Sequence[RecordedNode]) -> bool:
    """Return whether all that runs on one of the nodes was stopped or frozen from outside."""
    return any(one.record.job.paused for one in nodes)


# ---- whose answer counts -------------------------------------------------------------------------


def _choose_nodes(
    nodes: Sequence[RecordedNode],
) -> tuple[Ended | None, list[RecordedNode], list[RecordedNode]]:
    """Return how the job ended (None where it stands still), the nodes that are judged, and those
    that are not: a rank that fails after another node's hang was ended lost its peers by that.
    """
    failed = [one for one in nodes if one.verdict.outcome not in ("ok", "interrupted")]
    if not failed:
        was_cut = any(one.verdict.outcome == "interrupted" for one in nodes)
        return ("interrupted" if was_cut else "done"), [*nodes], []
    first = min(failed, key=lambda one: one.record.clock.wall)
    if first.verdict.outcome == "crash":
        return "crash", [*nodes], []
    later = [one for one in nodes if one.verdict.outcome == "crash"]
    return None, [one for one in nodes if one not in later], later


def _choose_end(ranks: Sequence[RankFacts], nodes: Sequence[RecordedNode]) -> Ended:
    """Return how a job stands still, of which no node has failed."""
    if any(facts.moved for facts in ranks):
        return "limit"
    ends = [one.record.job.ended for one in nodes]
    ways: tuple[Ended, ...] = ("left", "late", "busy")
    return next((way for way in ways if way in ends), "still")


def _forget_who_was_told_to_end(
    nodes: Sequence[RecordedNode],
) -> tuple[list[RecordedNode], list[str]]:
    """Return the nodes, and in words which ranks of them were told to end once another node had
    found that the job stands still: how they ended says nothing of why. What they did before is
    known only as far as they were looked at.
    """
    stood = [one.record.clock.wall for one in nodes if one.verdict.outcome in STANDS_STILL]
    since = min(stood, default=float("inf"))
    notes = []
    for one in nodes:
        if _was_cut_after(one, since):
            told = [facts.rank for facts in one.record.ranks if _was_told_to_end(facts)]
            were = "was" if len(told) == 1 else "were"
            where = f"{format_ranks(told)} on {one.record.host}"
            notes += [f"{where} {were} told to end after that"] if told else []
    return [_take_back_ends(one) if _was_cut_after(one, since) else one for one in nodes], notes


def _was_cut_after(node: RecordedNode, wall: float) -> bool:
    return node.verdict.outcome == "interrupted" and node.record.clock.wall > wall


def _take_back_ends(node: RecordedNode) -> RecordedNode:
    record = replace(node.record, ranks=tuple(map(_take_back_end, node.record.ranks)))
    return replace(node, record=record, ranks=tuple(map(_take_back_end, node.ranks)))


def _was_told_to_end(facts: RankFacts) -> bool:
    """Return whether a rank of a node that was interrupted ended by that, as far as is known."""
    return facts.left and facts.status in (*ENDED_ON_REQUEST, None) and not facts.error


def _take_back_end(facts: RankFacts) -> RankFacts:
    if not _was_told_to_end(facts):
        return facts
    return replace(facts, alive=True, left=False, left_at=None, status=None)


def _note_later_end(node: RecordedNode) -> str:
    ranks = [facts.rank for facts in node.record.ranks]
    why = next((f": {facts.error}" for facts in node.record.ranks if facts.error), "")
    return f"{format_ranks(ranks)} on {node.record.host} failed after that{why}"


def _note_absent(facts: JobFacts, nodes: Sequence[RecordedNode]) -> list[str]:
    """Return which ranks of the job no node has told of, in words."""
    absent = _list_absent_ranks(nodes, facts.lost_nodes, facts.world_size)
    if not absent:
        return []
    are = "is" if len(absent) == 1 else "are"
    hosts = describe_absent_hosts(facts.absent_hosts)
    where = f": {hosts}" if hosts else ""
    return [f"{format_ranks(absent)} {are} on nodes that have left nothing here{where}"]


def _list_absent_ranks(
    nodes: Sequence[RecordedNode], lost: Sequence[LostNode], world: int
) -> list[int]:
    """Return the ranks of which no node has told."""
    known = {rank for one in nodes for rank in one.record.job.local_ranks}
    known |= {each.rank for one in nodes for each in one.record.ranks}
    known |= {rank for one in lost for rank in one.ranks}
    absent = [rank for rank in range(world) if rank not in known]
    unnumbered = sum(not isinstance(rank, int) for rank in known)
    return absent if len(absent) > unnumbered else []


# Of a step before those of the allocation, which may have more.
_SLURM_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")


def _list_absent_hosts(joint: JointNodes, lost: Sequence[LostNode]) -> tuple[str, ...]:
    """Return the hosts that Slurm has for the job and that have not come; () where all ranks have,
    or where Slurm calls hosts otherwise than they do themselves.
    """
    nodes = joint.nodes
    world = max(one.record.job.world_size for one in nodes)
    if not _list_absent_ranks(nodes, lost, world):
        return ()
    told = [facts.environment for one in nodes for facts in one.record.ranks]
    lists = (own[name] for name in _SLURM_LISTS for own in told if own.get(name))
    try:
        names = read_host_names(next(lists, ""))
    except UsageError:
        return ()
    come = {_first_label(one.record.host) for one in nodes}
    if not come <= {*map(_first_label, names)}:
        return ()
    come |= {_first_label(one.host) for one in lost}
    return tuple(name for name in dict.fromkeys(names) if _first_label(name) not in come)


def _first_label(host: str) -> str:
    return host.partition(".")[0].lower()


# ---- one job of several --------------------------------------------------------------------------


def _join_facts(nodes: Sequence[RecordedNode], clock: NodeClock, ended: Ended) -> JobFacts:
    jobs = [_shift_job(one.record.job, _find_offset(one.record.clock, clock)) for one in nodes]
    stills = [one.still for one in jobs if one.still is not None]
    lates = [one.past_deadline for one in jobs if one.past_deadline is not None]
    unstarted = [f"{one.record.host}: {t}" for one in nodes if (t := one.record.job.unstarted)]
    return replace(
        jobs[0],
        ended=ended,
        world_size=max(one.world_size for one in jobs),
        now=max(one.now for one in jobs),
        started=min(one.started for one in jobs),
        still=min(stills, default=None),
        past_deadline=max(lates, default=None),
        to_verdict=None,
        slow_steps=tuple(dict.fromkeys(step for one in jobs for step in one.slow_steps)),
        barrier_opened=next((one.barrier_opened for one in jobs if one.barrier_opened), None),
        notes=tuple(dict.fromkeys(note for one in jobs for note in one.notes)),
        said=tuple(dict.fromkeys(sentence for one in jobs for sentence in one.said)),
        unstarted="; ".join(unstarted),
        paused="; ".join(
            f"{one.record.host}: {p}" for one in nodes if (p := one.record.job.paused)
        ),
        starting=next((one.starting for one in jobs if one.starting), ""),
        machine=MachineFacts(),
        machines=gather_machines(
            (one.record.host, about.machine) for one, about in zip(nodes, jobs, strict=True)
        ),
    )


def _join_ranks(
    nodes: Sequence[RecordedNode], clock: NodeClock
) -> tuple[list[RankFacts], list[str]]:
    """Return the ranks of all nodes on one clock, those too that never came to theirs, and in words
    which were left out as an earlier node has them too.
    """
    found: dict[RankId, RankFacts] = {}
    doubles: list[str] = []
    for one in nodes:
        offset = _find_offset(one.record.clock, clock)
        with_looks = {facts.rank: facts for facts in one.ranks}
        for recorded in one.record.ranks:
            facts = with_looks.get(recorded.rank, recorded)
            facts = replace(_shift_rank(facts, offset), host=facts.host or one.record.host)
            other = found.setdefault(facts.rank, facts)
            if other is not facts:
                found[facts.rank] = mark_twin(other, facts)
                doubles.append(
                    f"rank {facts.rank} runs on {other.host} and on {facts.host}: two jobs, "
                    "or two starts of one; the second was left out"
                )
    for one in nodes:
        for number in one.record.job.local_ranks:
            found.setdefault(number, make_unseen_rank(number, one.record.host))
    ranks = fill_in_same_looks([*found.values()])
    return sorted(ranks, key=lambda facts: facts.rank), doubles


def _add_figures(verdict: Verdict, nodes: Sequence[RecordedNode]) -> Verdict:
    """Return the verdict with what each node alone has counted."""
    own = [one for one in nodes if {*verdict.ranks.culprit} & {r.rank for r in one.record.ranks}]
    stills = [s for one in own or nodes if (s := one.verdict.seconds.still) is not None]
    trained = [n for one in nodes if (n := one.verdict.trained) is not None]
    seconds = verdict.seconds
    if verdict.outcome != "ok":
        seconds = replace(seconds, still=min(stills, default=seconds.still))
    return replace(verdict, seconds=seconds, trained=max(trained, default=None))


# ---- clocks --------------------------------------------------------------------------------------


def _find_offset(clock: NodeClock, reference: NodeClock) -> float:
    """Return what is to be added to a time of `clock` to have it on the reference's: as exact as
    the wall clocks of the two agree.
    """
    return (clock.wall - clock.monotonic) - (reference.wall - reference.monotonic)


def _shift(at: float | None, offset: float) -> float | None:
    return None if at is None else at + offset


def _shift_job(job: JobFacts, offset: float) -> JobFacts:
    machine = shift_gpu_errors(job.machine, offset)
    return replace(job, now=job.now + offset, started=job.started + offset, machine=machine)


def _shift_rank(facts: RankFacts, offset: float) -> RankFacts:
    if not offset:
        return facts
    logs = (
        replace(
            log, operations=tuple(replace(o, at=o.at and o.at + offset) for o in log.operations)
        )
        for log in facts.collectives
    )
    return replace(
        facts,
        entered=_shift(facts.entered, offset),
        last_line_at=_shift(facts.last_line_at, offset),
        left_at=_shift(facts.left_at, offset),
        looks=tuple(_shift_look(look, offset) for look in facts.looks),
        children=tuple(tuple(_shift_look(k, offset) for k in looks) for looks in facts.children),
        collectives=tuple(logs),
    )


def _shift_look(look: Look, offset: float) -> Look:
    sample = look.sample and replace(look.sample, at=look.sample.at + offset)
    return replace(look, at=look.at + offset, sample=sample)


# ---- nodes that are not seen ---------------------------------------------------------------------


def _list_addresses(nodes: Sequence[RecordedNode]) -> dict[str, str]:
    """Return the host of each address by which a node reached the one that judges."""
    found = map_addresses((one.address, one.record.host) for one in nodes)
    return {address: host for address, host in found.items() if not is_loopback(address)}


def describe_lost(lost: Sequence[LostNode]) -> list[str]:
    """Return in words which nodes are not seen, and since when."""
    return [
        f"{one.host} ({format_ranks(one.ranks)}) is not seen"
        + (f" from here, for {format_seconds(one.silent)}" if one.silent is not None else "")
        for one in lost
    ]


def drop_lost(facts: JobFacts) -> JobFacts:
    """Return the job without the nodes that one node did not see: others may see them."""
    told = describe_lost(facts.lost_nodes)
    notes = tuple(note for note in facts.notes if note not in told)
    return replace(facts, lost_nodes=(), notes=notes)
