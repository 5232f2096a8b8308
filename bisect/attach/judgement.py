"""Judges from what the machines of a job tell whether it moves, or hangs, and why. Touches nothing.

What stands still is a hang where something proves it, and silent where nothing does: a look of two
seconds does not tell how long an answer takes.

A loop that waits by looking runs Python, in a few lines of one function of the job's own, and
keeps nothing. A rank that works for so long in one place is in a library's or a native function,
or needs more memory for what it makes. What neither tells stays open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..base.files import PACKAGE
from ..base.identity import ProcessId, RankId, UnknownRank
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Frame, Look
from ..base.rank_facts import (
    Ended,
    JobFacts,
    LostNode,
    MachineFacts,
    RankFacts,
    gather_machines,
    shift_gpu_errors,
)
from ..base.verdict_facts import CheckpointPlace, Ranks, Verdict
from ..base.version import VERSION
from ..base.words import format_bytes
from ..collect.node_connections import connect_nodes
from ..diagnosis.compilation import find_compilations, find_waiting_ranks
from ..diagnosis.process.frames import frame_owner
from ..diagnosis.process.process_snapshot import merge_looks
from ..diagnosis.process.time_limits import find_time_limit, note_given_limit
from ..diagnosis.proof_of_hang import find_proof_of_hang
from ..diagnosis.rank_connections import note_exchanges
from ..diagnosis.snapshot import Snapshot
from ..diagnosis.verdict import judge_snapshot
from ..diagnosis.wait_graph import WaitGraph
from ..dumps.facts_in_stack import place_of_call
from ..evidence.gpus.gpu_errors import describe_gpu_error
from .node_facts import NodeFacts

BUSY_IS_HUNG = 60.0  # seconds in the same few places that make a rank that computes one that hangs


@dataclass(frozen=True)
class Judgement:
    """The answer, and what it rests on. The outcome is ok for a job that moves, hang or silent for
    one that stands still, or slow for one that computes in the same few places, as it may be at
    work, and for one of which a part compiles while the rest waits.
    """

    verdict: Verdict
    facts: JobFacts
    ranks: tuple[RankFacts, ...]
    graph: WaitGraph
    moving: tuple[RankId, ...] = ()
    quiet: tuple[RankId, ...] = ()
    silent_for: float | None = None  # seconds until a silent wait ends by itself, if that is known

    @property
    def only_moves(self) -> bool:
        """Whether there is nothing to say but what moves."""
        return bool(self.moving) and self.verdict.outcome != "slow"


_MOST_GPU_NOTES = 4  # of one machine


def judge_nodes(
    nodes: Sequence[NodeFacts],
    notes: Sequence[str] = (),
    now: float = 0.0,
    lost: Sequence[LostNode] = (),
    silent: Mapping[str, str] | None = None,
) -> Judgement:
    """Return what the machines of a job tell together. `now` is our own clock's time; `notes` are
    sentences for the verdict; `lost`: machines that the network does not reach; `silent`: those
    that do not answer where the launcher has started no rank, and what came instead.
    """
    first = nodes[0]
    ranks = sorted(
        (r for node in nodes for r in _ranks_on_our_clock(node, now)), key=lambda r: r.rank
    )
    seen_alone, ranks = ranks, note_exchanges(connect_nodes(ranks))
    both = zip(seen_alone, ranks, strict=True)
    talking = {after.rank for before, after in both if after.moved and not before.moved}
    moving = tuple(sorted(talking.union(*(node.moving for node in nodes))))
    busy = tuple(sorted(r for node in nodes for r in node.busy))
    span = min(node.span for node in nodes)
    # Who waits for something of its own does not wait for a compiler.
    is_compiling = not any(node.quiet for node in nodes) and _others_wait_for_compilation(ranks)
    table = first.table if all(node.table == first.table for node in nodes) else ()
    facts = JobFacts(
        ended="limit" if is_compiling else _choose_end(moving, busy),
        command=first.command,
        table=table,
        attempt=_find_attempt(ranks),
        world_size=max([*(node.world for node in nodes), len(ranks)]),
        local_ranks=tuple(r.rank for r in ranks),
        now=now,
        started=now - max(node.age for node in nodes),
        still=None if moving else round(span, 3),
        versions={"hangbisect": VERSION},
        notes=(*notes, *_note_unknown(ranks), *_note_nodes(nodes)),
        said=tuple(sentence for node in nodes for sentence in node.said),
        machine=first.machine if len(nodes) == 1 else MachineFacts(),
        machines=_gather_machines(nodes, now),
        starting=next((node.starting for node in nodes if node.starting), ""),
        restarted=next((node.restarted for node in nodes if node.restarted), None),
        lost_nodes=tuple(lost),
        silent_hosts=dict(silent or {}),
    )
    seen = Snapshot(ranks)
    verdict, graph = judge_snapshot(facts, seen)
    if verdict.outcome == "hang" and not find_proof_of_hang(verdict, seen, graph):
        verdict = note_given_limit(replace(verdict, outcome="silent"), ranks)
    if moving:
        verdict = replace(verdict, notes=(*verdict.notes, *describe_moves(ranks, moving)))
    else:
        verdict = _drop_guess(verdict)
        if _may_be_at_work(ranks, busy, span):
            verdict = replace(verdict, outcome="slow")
    if not table and (is_compiling or not moving):
        verdict = replace(verdict, checkpoint=_find_checkpoint(verdict, ranks))
    if first.launcher is not None:
        verdict, facts = _blame_launcher(verdict), replace(facts, world_size=0)
    quiet = tuple(sorted(r for node in nodes for r in node.quiet))
    left = _find_time_left(verdict, nodes)
    return Judgement(verdict, facts, seen.ranks, graph, moving, quiet, left)


def _find_time_left(verdict: Verdict, nodes: Sequence[NodeFacts]) -> float | None:
    """Return the seconds until the waits of who is silent end by themselves, if that is known."""
    if verdict.outcome != "silent":
        return None
    left = [end - node.at for node in nodes if (end := find_time_limit(verdict, node.ranks))]
    return max(left, default=None)


def _find_checkpoint(verdict: Verdict, ranks: Sequence[RankFacts]) -> CheckpointPlace | None:
    """Return the checkpoint that the culprit is on its way to, as far as its stack tells; where it
    is not there, one of those that wait for it.
    """
    people = [r for r in ranks if r.rank in verdict.ranks.culprit and r.looks]
    people = people or [r for r in ranks if r.rank in verdict.ranks.waiting and r.looks]
    view = merge_looks(people[0].looks) if people else None
    return place_of_call(verdict.call, view.frames if view is not None else ())


def _drop_guess(verdict: Verdict) -> Verdict:
    """Return the verdict without culprits where of none of several ranks is known what it does."""
    culprit, wait = verdict.ranks.culprit, verdict.waits_for
    nothing_known = wait is None or wait.kind == "unknown"
    if len(culprit) < 2 or len(culprit) < verdict.world_size or verdict.call or not nothing_known:
        return verdict
    return replace(
        verdict,
        ranks=replace(verdict.ranks, culprit=()),
        where=(),
        waits_for=None,
        candidates=(),
    )


def describe_moves(ranks: Sequence[RankFacts], moving: Sequence[RankId]) -> list[str]:
    """Return what moves, a sentence a rank."""
    return [f"moving: rank {r.rank} {r.moved}" for r in ranks if r.rank in moving and r.moved]


def _others_wait_for_compilation(ranks: Sequence[RankFacts]) -> bool:
    """Return whether ranks compile, and the rest of them waits: that is slow, and worth a word."""
    compilations = find_compilations(ranks)
    return bool(compilations and find_waiting_ranks(ranks, compilations))


def _choose_end(moving: Sequence[RankId], busy: Sequence[RankId]) -> Ended:
    if moving:
        return "past"  # nothing is to be said of who hangs
    return "busy" if busy else "still"


def _may_be_at_work(ranks: Sequence[RankFacts], busy: Sequence[RankId], span: float) -> bool:
    """Return whether a job may be at work: too short a look to call it a loop without end, unless
    it is plainly one.
    """
    loops = [facts.rank for facts in ranks if is_spinning(facts, PACKAGE)]
    return bool(set(busy) - set(loops)) and span < BUSY_IS_HUNG


def _ranks_on_our_clock(node: NodeFacts, now: float) -> list[RankFacts]:
    """Return a machine's ranks with the time of what they printed on our clock."""
    return [
        facts
        if facts.last_line_at is None
        else replace(facts, last_line_at=now - (node.at - facts.last_line_at))
        for facts in node.ranks
    ]


def _find_attempt(ranks: Sequence[RankFacts]) -> int:
    counts = [r.environment.get("TORCHELASTIC_RESTART_COUNT", "") for r in ranks]
    return max((int(c) for c in counts if c.isascii() and c.isdecimal()), default=0)


def _note_unknown(ranks: Sequence[RankFacts]) -> list[str]:
    unknown = [r for r in ranks if isinstance(r.rank, UnknownRank)]
    if not unknown:
        return []
    alone = len({r.host for r in ranks}) == 1
    pids = ", ".join(str(r.pid if alone else ProcessId(r.host, r.pid or 0)) for r in unknown)
    return [f"which ranks the processes {pids} are could not be read"]


def _note_nodes(nodes: Sequence[NodeFacts]) -> list[str]:
    """Return what else the machines say: their notes, and the downloads that are not complete."""
    found = [note for node in nodes for note in node.notes]
    for file in (file for node in nodes for file in node.downloads):
        grows = "grows" if file.grew else "does not grow"
        found.append(
            f"download {file.path} of process {file.pid}: {format_bytes(file.size)}, {grows}"
        )
    if len(nodes) > 1:  # of one machine they are facts of the job, and may be its cause
        found += [note for node in nodes for note in _note_gpu_errors(node)]
        found += _note_drivers(nodes)
    return found


def _note_drivers(nodes: Sequence[NodeFacts]) -> list[str]:
    """Return that machines have different drivers of NVIDIA's, if they do."""
    hosts: dict[str, list[str]] = {}
    for node in nodes:
        if node.machine.driver:
            hosts.setdefault(node.machine.driver, []).append(node.host)
    if len(hosts) < 2:
        return []
    words = [
        f"{version} on {', '.join(names[:4])}{f' and {len(names) - 4} more' * (len(names) > 4)}"
        for version, names in sorted(hosts.items())
    ]
    return [f"NVIDIA's drivers differ: {', '.join(words)}"]


def _note_gpu_errors(node: NodeFacts) -> list[str]:
    """Return what the driver reported of the GPUs of a machine that its ranks use, or of which it
    is not known who uses them, a device once.
    """
    pids = {facts.pid for facts in node.ranks}
    others = [g.bus for g in node.machine.gpus if g.pids and not pids & {*g.pids}]
    found: dict[str, str] = {}
    for error in node.machine.gpu_errors:
        if error.kind != "other" and not any(bus.startswith(error.bus) for bus in others):
            found.setdefault(error.bus, f"{node.host}: {describe_gpu_error(error)}")
    return list(found.values())[:_MOST_GPU_NOTES]


def _gather_machines(nodes: Sequence[NodeFacts], now: float) -> dict[str, MachineFacts]:
    """Return the machines of several nodes by host, with the times of their errors on our clock."""
    if len(nodes) == 1:
        return {}
    return gather_machines(
        (node.host, shift_gpu_errors(node.machine, now - node.at)) for node in nodes
    )


def _blame_launcher(verdict: Verdict) -> Verdict:
    """Return the verdict where it is the launcher that hangs: no rank is there to be blamed."""
    return replace(
        verdict,
        world_size=0,
        ranks=Ranks(),
        checkpoint=CheckpointPlace(0, "launcher", "Ranks started"),
        component="launcher",
        try_=(),
        candidates=(),
        chain=(),
    )


LEAST_SPIN_LOOKS = 6  # at the least
LEAST_SPIN_SPAN = 8.0  # seconds from the first to the last
MOST_SPIN_LINES = 3  # of a loop that waits
MOST_SPIN_GROWTH = 1 << 20  # bytes by which its memory may change


def is_spinning(facts: RankFacts, package: str) -> bool:
    """Return whether all looks at a rank show it in the same few lines of its own, running Python,
    and keeping nothing.
    """
    looks = [look for look in facts.looks if look.main is not None and look.main.frames]
    if (
        not facts.busy
        or len(looks) < LEAST_SPIN_LOOKS
        or looks[-1].at - looks[0].at < LEAST_SPIN_SPAN
    ):
        return False
    innermost = [_innermost_frame(look) for look in looks]
    places = {(f.file, f.name) for f in innermost}
    lines = {f.line for f in innermost}
    own = all(frame_owner(f, package) == "user" for f in innermost)
    return (
        own
        and len(places) == 1
        and len(lines) <= MOST_SPIN_LINES
        and _runs_python(looks)
        and _keeps_its_memory(looks)
    )


def _innermost_frame(look: Look) -> Frame:
    assert look.main is not None
    return look.main.frames[0]


def _runs_python(looks: Sequence[Look]) -> bool:
    """Return whether the main thread had the GIL in most looks."""
    return 2 * sum(look.main is not None and look.main.owns_gil for look in looks) > len(looks)


def _keeps_its_memory(looks: Sequence[Look]) -> bool:
    sizes = [look.memory for look in looks if look.memory is not None]
    return bool(sizes) and max(sizes) - min(sizes) <= MOST_SPIN_GROWTH
