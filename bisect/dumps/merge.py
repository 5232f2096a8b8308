"""Merges all dumps: which process is which rank, the job that they show, and the verdict on it.

The same diagnosis as of a job that was watched, with what a dump does not tell left out: no
checkpoint but that of the call, no time, no system call but the one that the stack ends in. That
the job hangs is what whoever made the dumps saw: one dump of each rank cannot tell slow from
hung.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

from ..base.files import by_names
from ..base.identity import RankId, UnknownRank
from ..base.launcher_env import Ancestor
from ..base.launchers import LAUNCHERS
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Frame, Kernel, Look, Syscall, Thread
from ..base.rank_facts import CollectiveLog, Ended, JobFacts, RankFacts
from ..base.verdict_facts import Ranks, Verdict
from ..diagnosis.collectives.counted_mismatch import describe_common_operation
from ..diagnosis.collectives.log_divergence import find_mismatch
from ..diagnosis.process.frames import frame_owner, unqualified_name
from ..diagnosis.process.process_snapshot import merge_looks
from ..diagnosis.process.public_calls import find_group_call, find_group_wait
from ..diagnosis.verdict import judge_job_with_graph
from ..evidence.gpus.nccl_lines import assign_ranks, collect_nccl_facts, describe_nccl_lines
from ..evidence.gpus.watchdog_messages import WatchdogMessages, make_watchdog_logs
from .contents import (
    Contents,
    DumpedProcess,
    RankMessages,
    RecordedLog,
    drop_sleep_frames,
)
from .facts_in_stack import RankLocals, place_of_call, read_rank_locals

# What faulthandler calls the signals by which a process ends by itself (Modules/faulthandler.c).
# Not "Aborted": so ends as well what hung until a watchdog of NCCL's lost its patience.
_FATAL_SIGNALS = {
    "Segmentation fault": signal.SIGSEGV,
    "Bus error": signal.SIGBUS,
    "Floating-point exception": signal.SIGFPE,
    "Floating point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
}
_LAUNCHER_FILES = tuple(part for one in LAUNCHERS for part in one.files)


@dataclass(frozen=True)
class DumpedRank:
    """A rank, by its number if that is known, and where it stands in the files."""

    facts: RankFacts
    number: int | None
    sources: tuple[str, ...]  # "FILE:LINE"
    has_stack: bool = True


@dataclass(frozen=True)
class MergedDumps:
    """What all dumps show together."""

    ranks: tuple[DumpedRank, ...]
    world_size: int  # 0: not known
    notes: tuple[str, ...] = ()

    @property
    def unseen(self) -> tuple[int, ...]:
        """The ranks that the job has and no dump shows; none where some have no number."""
        numbers = {one.number for one in self.ranks}
        if None in numbers:
            return ()
        return tuple(rank for rank in range(self.world_size) if rank not in numbers)


class _ProcessRank(NamedTuple):
    """A process, and what its stack tells of it."""

    dump: DumpedProcess
    says: RankLocals


@dataclass
class _RankDumps:
    """A rank while it is put together."""

    number: int | None
    pid: int | None
    host: str = ""
    dumps: list[DumpedProcess] = field(default_factory=list)
    children: dict[object, list[DumpedProcess]] = field(default_factory=dict)
    logs: list[RecordedLog] = field(default_factory=list)


def merge_dumps(found: Contents) -> MergedDumps:
    """Return the job that these dumps show."""
    notes: list[str] = []
    files = [*(one.file for one in found.processes), *(one.file for one in found.recorded)]
    files += [one.file for one in found.messages] + [file for _, file in found.nccl_lines]
    files += [one.file for one in found.unreadable]  # they too are a rank's
    names = by_names(list(dict.fromkeys(files)))
    said = [_ProcessRank(one, _find_rank(one)) for one in found.processes]
    ranks = _find_ranks(said, names, notes)
    recorded = [*found.recorded, *_make_watchdog_logs(found.messages, names)]
    _add_logs(ranks, recorded, names, notes)
    ranks.sort(key=lambda one: (one.number is None, one.number or 0))
    known = sum(one.number is not None for one in ranks)
    lines = [(one, names.get(file)) for one, file in found.nccl_lines]
    said_by_nccl = collect_nccl_facts(assign_ranks(lines))
    found_ranks = [_make_dumped_rank(one, at - known) for at, one in enumerate(ranks, 1)]
    found_ranks = [
        replace(one, facts=replace(one.facts, nccl=said_by_nccl[one.number]))
        if one.number in said_by_nccl
        else one
        for one in found_ranks
    ]
    together = describe_common_operation([one.facts for one in found_ranks])
    notes += [together] if together else []
    notes += describe_nccl_lines(lines)
    world = _find_world_size(found, [one.says for one in said], ranks, names)
    return MergedDumps(tuple(found_ranks), world, tuple(dict.fromkeys(notes)))


# ---- which process is which ----------------------------------------------------------------------


def _find_ranks(
    said: Sequence[_ProcessRank], names: dict[str, int], notes: list[str]
) -> list[_RankDumps]:
    jobs: list[_ProcessRank] = []
    for one, says in said:
        if _is_dumped_launcher(one):
            notes.append(
                f"{_format_source(one)}: the launcher ({one.pid or 'pid unknown'}) is no rank"
            )
        else:
            jobs.append(_ProcessRank(one, says))
    of_jobs = {(one.file, one.pid) for one, _ in jobs if one.pid is not None}
    alone = _files_of_one_process(jobs)
    ranks: dict[object, _RankDumps] = {}
    children: list[DumpedProcess] = []
    for one, says in jobs:
        if says.worker or (one.file, one.parent) in of_jobs:
            children.append(one)
            continue
        number = one.rank if one.rank is not None else says.number
        if number is None and one.file in alone:
            number = names.get(one.file)
        rank = ranks.setdefault(_key_of_process(one, number), _RankDumps(number, one.pid, one.host))
        rank.dumps.append(one)
    made = _merge_doubles(list(ranks.values()), notes)
    _add_children(made, children, notes)
    return made


def _files_of_one_process(jobs: Sequence[_ProcessRank]) -> set[str]:
    """Return the files that hold one process alone, its workers aside: what such a file is called
    says which rank it is. A dump without a pid (faulthandler's) is of the process beside it.
    """
    pids: dict[str, set[int | None]] = {}
    for one, says in jobs:
        if not says.worker:
            pids.setdefault(one.file, set()).add(one.pid)
    parents = {(one.file, one.pid) for one, _ in jobs}
    for one, _ in jobs:
        if one.parent is not None and (one.file, one.parent) in parents:
            pids.get(one.file, set()).discard(one.pid)
    return {file for file, inside in pids.items() if len(inside - {None}) <= 1}


def _is_dumped_launcher(one: DumpedProcess) -> bool:
    if one.command and Ancestor({}, tuple(one.command.split())).launcher is not None:
        return True
    frames = _main_frames(one)
    return any(part in frame.file for frame in frames for part in _LAUNCHER_FILES)


def _find_rank(one: DumpedProcess) -> RankLocals:
    return read_rank_locals(_make_look(one, 0.0, one.pid or 0))


def _main_frames(one: DumpedProcess) -> tuple[Frame, ...]:
    return one.threads[0].frames


def _key_of_process(one: DumpedProcess, number: int | None) -> object:
    """Return what tells one process from another."""
    if one.pid is not None:
        return "pid", one.host, one.pid, number
    if number is not None:
        return "rank", number
    return "file", one.file, one.thread or one.line


def _merge_doubles(ranks: list[_RankDumps], notes: list[str]) -> list[_RankDumps]:
    """Return `ranks`; where several processes have one number, it is the number of none."""
    found: dict[int, list[_RankDumps]] = {}
    for one in ranks:
        if one.number is not None:
            found.setdefault(one.number, []).append(one)
    gone: set[int] = set()
    for number, doubles in found.items():
        known = [one for one in doubles if one.pid is not None]
        nameless = [one for one in doubles if one.pid is None]
        if len(known) == 1 and nameless:  # another tool, which names no pid
            for one in nameless:
                known[0].dumps += one.dumps
                gone.add(id(one))
        elif len(known) > 1:
            where = ", ".join(
                f"{_format_source(one.dumps[0])} (pid {one.pid})" for one in doubles[:4]
            )
            notes.append(f"rank {number} is claimed by {len(doubles)} processes: {where}")
            for one in doubles:
                one.number = None
    return [one for one in ranks if id(one) not in gone]


def _add_children(
    ranks: list[_RankDumps], children: Sequence[DumpedProcess], notes: list[str]
) -> None:
    """Give each child to its rank: the parent that it names, else the one of its number, else the
    only one in its file.
    """
    owners: dict[object, list[_RankDumps]] = {}
    for rank in ranks:
        files = {dump.file for dump in rank.dumps}
        keys = [*files, *((file, rank.pid) for file in files), rank.pid, ("rank", rank.number)]
        for key in keys:
            owners.setdefault(key, []).append(rank)
    for one in children:
        keys = [(one.file, one.parent), one.parent, ("rank", one.rank), one.file]
        asked = [key for key in keys if key is not None and key != ("rank", None)]
        found = next((few[0] for k in asked if len(few := owners.get(k, [])) == 1), None)
        if found is None:
            notes.append(f"{_format_source(one)}: a worker, of a rank that is not among the dumps")
        else:
            number = one.pid if one.pid is not None else (one.file, one.line)
            found.children.setdefault(number, []).append(one)


def _add_logs(
    ranks: list[_RankDumps],
    recorded: Sequence[RecordedLog],
    names: dict[str, int],
    notes: list[str],
) -> None:
    with_stacks = bool(ranks)
    for one in recorded:
        number = one.rank if one.rank is not None else names.get(one.file)
        if number is None and with_stacks:
            notes.append(f"{one.file}: its name tells no rank, so its collectives go unused")
            continue
        rank = next((r for r in ranks if number is not None and r.number == number), None)
        if rank is None:
            rank = _RankDumps(number, None)
            ranks.append(rank)
        rank.logs.append(one)


def _make_watchdog_logs(
    messages: Sequence[RankMessages], names: Mapping[str, int]
) -> Iterator[RecordedLog]:
    """Yield what NCCL's watchdog told on each rank: that of its lines, else of the file's name."""
    by_rank: dict[RankId, list[WatchdogMessages]] = {}
    files: dict[RankId, str] = {}
    # Beside lines with a rank those without one are what exceptions say again.
    marked = {one.file for one in messages if one.messages.rank is not None}
    for one in messages:
        number = names.get(one.file) if one.file not in marked else one.messages.rank
        if number is not None:
            by_rank.setdefault(number, []).append(one.messages)
            files.setdefault(number, one.file)
    for rank, log in make_watchdog_logs(by_rank).items():
        if isinstance(rank, int):
            yield RecordedLog(log, files[rank], rank=rank)


# ---- the job -------------------------------------------------------------------------------------


def _make_dumped_rank(one: _RankDumps, place: int) -> DumpedRank:
    """Return a rank as the diagnosis takes it; `place` counts those that have no number."""
    pid = one.pid if one.pid is not None else 0
    # One log may have a rank's earlier starts as well.
    dumps = [dump for dump in one.dumps if dump.thread in ("", one.dumps[-1].thread)]
    looks = tuple(_make_look(dump, float(at), pid) for at, dump in enumerate(dumps))
    children = tuple(
        tuple(_make_look(d, float(at), d.pid or -2 - n) for at, d in enumerate(dumps))
        for n, dumps in enumerate(one.children.values())
    )
    logs = _choose_longest_logs(one.logs)
    if not looks:
        looks = (_make_look_of_log(logs),)
    fatal = next((dump.fatal for dump in one.dumps if dump.fatal in _FATAL_SIGNALS), "")
    facts = RankFacts(
        alive=not fatal,
        left=bool(fatal),
        status=-_FATAL_SIGNALS[fatal] if fatal else None,
        error=f"Fatal Python error: {fatal}" if fatal else "",
        rank=UnknownRank(one.host, one.pid, place) if one.number is None else one.number,
        local_rank=one.number or 0,
        pid=one.pid,
        host=one.host,
        looks=looks,
        children=children,
        collectives=logs,
        moved=_describe_movement(looks),
    )
    sources = tuple(
        dict.fromkeys([*map(_format_source, one.dumps), *(log.file for log in one.logs)])
    )
    return DumpedRank(facts, one.number, sources, bool(one.dumps))


def _choose_longest_logs(logs: Iterable[RecordedLog]) -> tuple[CollectiveLog, ...]:
    """Return the log of each source that goes on longest: several dumps of one rank were made one
    after another, or the same as a pickle and as JSON.
    """
    newest: dict[str, CollectiveLog] = {}
    for log in sorted((one.log for one in logs), key=_find_last_time):
        newest[log.source] = log
    return tuple(newest.values())


def _find_last_time(log: CollectiveLog) -> float:
    return max((one.at for one in log.operations), default=0.0)


def _make_look_of_log(logs: Sequence[CollectiveLog]) -> Look:
    """Return what stands for a rank without a stack: the collective that its log ends in, as torch
    names its function; nothing where the last one is over.
    """
    ops = [one for log in logs for one in log.operations]
    last = ops[-1] if ops else None
    threads: tuple[Thread, ...] = ()
    if last is not None and last.done is False:
        file = "/site-packages/torch/distributed/distributed_c10d.py"
        threads = (Thread(0, "MainThread", False, False, (Frame(last.kind, file, 0),)),)
    return Look(0.0, 0, 0, "", (), 0.0, "?", "proc", threads)


def _make_look(one: DumpedProcess, at: float, pid: int) -> Look:
    main = one.threads[0]
    frames = drop_sleep_frames(main.frames)
    threads = (
        replace(main, os_id=pid, frames=frames),
        *(t for t in one.threads[1:] if t.os_id != pid),
    )
    state = "R" if main.active and not one.call else "S"
    call = Syscall(-1, one.call, ()) if one.call else None
    return Look(
        at=at,
        pid=pid,
        ppid=one.parent or 0,
        name=os.path.basename(one.command.split(" ")[0]) if one.command else "",
        command=tuple(one.command.split(" ")) if one.command else (),
        age=0.0,
        state=state,
        rung=one.tool,
        threads=threads,
        kernel=(Kernel(pid, "", state, "", call),),
    )


def _describe_movement(looks: Sequence[Look]) -> str:
    """Return in words that the job's own code went on from one dump to the next, "" if not."""
    places = []
    for look in looks:
        frames = look.main.frames if look.main else ()
        own = [f for f in frames if frame_owner(f, "") == "user"]
        places.append(tuple((f.file, unqualified_name(f.name), f.line) for f in own))
    last = places[-2:]
    return "another place at the last dump" if len(set(last)) > 1 else ""


def _find_world_size(
    found: Contents,
    says: Sequence[RankLocals],
    ranks: Sequence[_RankDumps],
    names: Mapping[str, int],
) -> int:
    """Return how many ranks the job has, as far as a stack or a log says so, at least those that
    were found, or that have a file in which nothing was found.
    """
    numbers = [names[one.file] + 1 for one in found.unreadable if one.file in names]
    told_so = [one.world for one in says if one.world]
    in_logs = [len(one.members) for one in found.recorded]
    numbers += [one.number + 1 for one in ranks if one.number is not None]
    return max([*told_so, *in_logs, *numbers, len(ranks)], default=0)


def _format_source(one: DumpedProcess) -> str:
    return f"{one.file}:{one.line}"


_KINDS_OF_OTHERS = ("rank", "absent_rank", "collective", "store")
_NOTHING_KNOWN: dict[str, Any] = {"waits_for": None, "cause": None, "candidates": (), "chain": ()}
_UNKNOWN_COMMAND = (
    "python",
)  # the diagnosis works out what to change about a command: there is none


def judge_dumps(merged: MergedDumps) -> Verdict:
    """Return the verdict as far as the dumps carry it; `ok` if every rank went on meanwhile."""
    ranks = tuple(one.facts for one in merged.ranks)
    ended: Ended = "done" if all(facts.moved for facts in ranks) else "still"
    if any(facts.left for facts in ranks):
        ended = "crash"
    job = JobFacts(
        ended=ended,
        command=_UNKNOWN_COMMAND,
        # Where a rank has no number, nobody can say which numbers are not there.
        world_size=merged.world_size if merged.unseen else 0,
        local_ranks=tuple(facts.rank for facts in ranks),
        package="",
        notes=merged.notes,
    )
    verdict, _ = judge_job_with_graph(job, ranks)
    if verdict.outcome == "hang":
        verdict = _limit_to_seen_ranks(verdict, merged, ranks)
    if verdict.outcome == "hang":
        verdict = replace(
            verdict, checkpoint=place_of_call(verdict.call, _frames_of_culprit(verdict, ranks))
        )
    # What to change about a command that nobody knows cannot be said.
    return replace(verdict, command=(), try_=(), world_size=merged.world_size)


def _frames_of_culprit(verdict: Verdict, ranks: Sequence[RankFacts]) -> tuple[Frame, ...]:
    """Return the stack of the first culprit; of nobody's fault none."""
    first = next((facts for facts in ranks if facts.rank in verdict.ranks.culprit), None)
    main = first.looks[-1].main if first is not None and first.looks else None
    return main.frames if main is not None else ()


def describe_divergence(merged: MergedDumps) -> str:
    """Return in a sentence where the ranks' collectives part, "" if they do not, or have no log."""
    found = find_mismatch([one.facts for one in merged.ranks])
    return found.sentence if found is not None else ""


def _limit_to_seen_ranks(
    verdict: Verdict, merged: MergedDumps, ranks: Sequence[RankFacts]
) -> Verdict:
    """Return `verdict` without what it says of ranks that no dump shows: they may have come, and
    whose fault it is may stand in their dumps.
    """
    if (len(ranks) == 1 and _waits_for_others(verdict, ranks[0])) or _all_make_a_group(ranks):
        return _accuse_nobody(verdict, ranks)
    if not verdict.ranks.waiting and not any(one.has_stack for one in merged.ranks):
        found = find_mismatch(ranks)
        if found is None or not found.is_sure:
            return _accuse_nobody(verdict, [one for one in ranks if _ends_in_operation(one)])
    if merged.unseen and not verdict.ranks.culprit:
        return replace(verdict, **_NOTHING_KNOWN)
    if verdict.waits_for is not None and verdict.waits_for.kind == "unknown":
        return replace(verdict, waits_for=None)
    return verdict


def _accuse_nobody(verdict: Verdict, waiting: Sequence[RankFacts]) -> Verdict:
    """Return `verdict` with these ranks waiting, and nothing said of whom for."""
    ranks = Ranks(waiting=tuple(sorted(facts.rank for facts in waiting)))
    return replace(verdict, ranks=ranks, where=(), **_NOTHING_KNOWN)


def _ends_in_operation(facts: RankFacts) -> bool:
    """Return whether a log of a rank ends in an operation that is not done."""
    return any(log.operations and log.operations[-1].done is False for log in facts.collectives)


def _waits_for_others(verdict: Verdict, facts: RankFacts) -> bool:
    view = merge_looks(facts.looks)
    if view is not None and find_group_wait(view) is not None:
        return True
    return verdict.waits_for is not None and verdict.waits_for.kind in _KINDS_OF_OTHERS


def _all_make_a_group(ranks: Sequence[RankFacts]) -> bool:
    """Return whether all wait in the making of the same group. That waits for nobody who is there:
    others are counted on, or the ranks look for one another in different places.
    """
    views = [view for facts in ranks if (view := merge_looks(facts.looks)) is not None]
    calls = {find_group_call(view.frames) for view in views}
    makes = all(find_group_wait(view) == "construction" for view in views)
    return len(views) == len(ranks) and len(calls) == 1 and makes
