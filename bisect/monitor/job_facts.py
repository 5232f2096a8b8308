"""The job and its ranks as a diagnosis takes them; with what ranks logged of their collectives, and
what other tools left, which is read when a job is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.deadline import call_with_limit
from ..base.identity import RankId
from ..base.rank_facts import (
    CollectiveLog,
    Ended,
    JobFacts,
    MachineFacts,
    RankFacts,
    RestartedProcess,
)
from ..base.rank_state import NodeRanks, RankState
from ..base.typed_messages import Message
from ..evidence import external_tools
from ..evidence.gpus import flight_recorder
from ..evidence.lock_and_log_files import PrintingRank, read_printed_lines
from ..evidence.locks_in_source import add_locks_of_others
from ..evidence.source_code import add_source_code
from .job import RankLogs, RecorderAnswer

if TYPE_CHECKING:
    from ..collect.looks import RasFacts
    from .clocks import Overdue
    from .job import Job


def make_rank_facts(
    member: RankState, moved: str = "", busy: bool = False, log: CollectiveLog | None = None
) -> RankFacts:
    """Return a member as a diagnosis takes it, with what it logged itself of its operations."""
    return RankFacts(
        rank=member.rank,
        local_rank=member.local_rank,
        pid=member.pid,
        host=member.host,
        twin=member.twin,
        reached=member.reached,
        held=member.held_at is not None,
        phase=member.phase,
        entered=member.entered,
        last_line=member.last_line,
        last_line_at=member.last_line_at,
        announced=member.announced,
        raised=member.raised,
        output=member.logged,
        alive=not member.left,
        left=member.has_left,
        status=member.status,
        error=member.last_error,
        title=member.title,
        traceback=member.traceback,
        finished=member.finished,
        awaits=member.awaits,
        step=member.inside,
        left_at=member.left_at,
        environment=dict(member.environment),
        looks=tuple(member.looks),
        children=tuple(tuple(looks) for looks in member.children.values()),
        beside=tuple(sorted(member.beside)),
        moved=moved,
        busy=busy,
        collectives=() if log is None else (log,),
    )


def make_job_facts(
    job: Job, ended: Ended, due: Overdue | None, starting: str = "", hears: str = ""
) -> JobFacts:
    """Return the job as it is now, when it `ended` or its clock ran out; `starting`: who may start
    more ranks (`describe_starting`); `hears`: who of these waits for a rank.
    """
    now = time.monotonic()
    return JobFacts(
        ended=ended,
        pipeline=str(job.settings["pipeline"]),
        command=tuple(job.settings["command"]),
        attempt=job.attempt,
        world_size=job.members.world_size,
        paused=job.paused,
        local_ranks=tuple(sorted(job.members.expected)),
        table=job.table,
        now=now,
        started=job.started,
        still=seconds_still(job, now, [m.rank for m in job.members if not m.waits_for_us]),
        past_deadline=round(now - due.since, 3) if due and due.clock == "late" else None,
        slow_steps=tuple(job.slow_steps.values()),
        barrier_opened=job.barrier_opened,
        versions=job.versions(),
        notes=(*job.notes, *describe_contradictions(job.members)),
        said=tuple(job.said),
        machine=job.machine or MachineFacts(),
        unstarted=job.members.unstarted,
        starting=starting,
        starter_hears=hears,
        restarted=_find_restarted(job),
        master_addresses=() if job.nodes is None else job.nodes.master_addresses,
    )


def _find_restarted(job: Job) -> RestartedProcess | None:
    """Return what was started by a rank and has failed again and again: no program that a rank asks
    from time to time, and that says no by its status.
    """
    found = job.ended_children.find_restarted() if job.ended_children is not None else None
    return found if found is not None and found.is_sure else None


async def describe_starting(job: Job) -> str:
    """Return which program may start more of the ranks, "" where none is missing, or where a
    launcher started them: that starts all at once.
    """
    if not job.runs_script or not job.members.expected - set(job.members.by_rank):
        return ""
    from ..evidence.rank_parents import describe_busy_parent

    return await describe_busy_parent([m.pid for m in job.members])


async def describe_hearing(job: Job) -> str:
    """Return which program that starts ranks waits for what one of them is to tell it, "" for none,
    and where a launcher's variables say how many there are.
    """
    if not job.runs_script or any("WORLD_SIZE" in m.environment for m in job.members):
        return ""
    from ..evidence.rank_parents import describe_hearing_parent

    return await describe_hearing_parent([m.pid for m in job.members])


def seconds_still(job: Job, now: float, ranks: Iterable[RankId]) -> float | None:
    """Return for how long nothing of these ranks has moved, None if they are gone."""
    members = [m for m in job.members if m.rank in set(ranks) and not m.left]
    return round(now - max(m.moved_at for m in members), 3) if members else None


CONTRADICTIONS_SHOWN = 3


def describe_contradictions(members: NodeRanks) -> list[str]:
    """Return what ranks found contradictory in their variables, a few of them in words."""
    sentences = [f"rank {m.rank}: {sentence}" for m in members for sentence in m.contradictions]
    more = len(sentences) - CONTRADICTIONS_SHOWN
    return [
        *sentences[:CONTRADICTIONS_SHOWN],
        *([f"and {more} more such contradictions"] * (more > 0)),
    ]


ANSWER_LIMIT = 1.0  # seconds for a thread of the rank to say what torch's recorder holds
LAST_ANSWER_LIMIT = 0.3  # of a rank that is about to end
READING_LIMIT = 2.0
FILES_LIMIT = 1.0  # the job's own source may lie on the disk that hangs
_CANNOT_ANSWER = ("D", "T", "t", "Z", "X", "")  # states of a process


async def add_logs(job: Job, ranks: Sequence[RankFacts], ended: Ended) -> list[RankFacts]:
    """Return the ranks with their logs of collectives, and with what other tools left behind.

    Takes a second where a rank cannot answer. Never raises.
    """
    # Not at the top: nearly all jobs end well, and their ranks would wait for it.
    from ..collect.library_facts import add_library_facts, read_library_facts
    from ..collect.looks import add_ras_logs

    able = [r.rank for r in ranks if ended != "crash" and _can_answer(r)]
    limit = LAST_ANSWER_LIMIT if ended == "interrupted" else ANSWER_LIMIT
    answers, ras = await asyncio.gather(job.logs.ask(able, limit), _ask_ras_service(ranks, ended))
    job.said += [note for note in ras.notes if note not in job.said]
    found: dict[RankId, list[CollectiveLog]] = {r.rank: [] for r in ranks}
    with contextlib.suppress(TimeoutError):
        await call_with_limit(_read_all, job.logs, answers, found, limit=READING_LIMIT)
    read = add_ras_logs([replace(r, collectives=tuple(found[r.rank])) for r in ranks], ras)
    files: dict[RankId, str] = {m.rank: m.error_file for m in job.members if m.error_file}
    with contextlib.suppress(TimeoutError):
        read = await call_with_limit(_add_printed_lines, read, files, limit=FILES_LIMIT)
    printed = await read_library_facts(read, job.started, files)
    job.said += [note for note in printed.notes if note not in job.said]
    # Who has failed is known: how far the others were by then is no evidence against them.
    read = add_library_facts(read, replace(printed, logs={}) if ended == "crash" else printed)
    with contextlib.suppress(TimeoutError):
        since = time.time() - (time.monotonic() - job.started)
        read = await call_with_limit(_add_from_files, read, files, since, limit=FILES_LIMIT)
    return read


def _can_answer(facts: RankFacts) -> bool:
    return facts.alive and not (facts.looks and facts.looks[-1].state in _CANNOT_ANSWER)


def _read_all(
    logs: RankLogs,
    answers: Mapping[RankId, RecorderAnswer],
    found: dict[RankId, list[CollectiveLog]],
) -> None:
    """Read rings, then answers: what is read is in `found` even if this takes too long."""
    for rank, of_rank in found.items():
        ring = logs.read(rank)
        if ring is not None:
            of_rank.append(ring)
    for rank, (about, dumps) in answers.items():
        log = _parse_answer(about, dumps)
        if log is not None:
            found[rank].append(log)


def _parse_answer(about: Message, dumps: Sequence[bytes]) -> CollectiveLog | None:
    """Return the log in a rank's answer: of two recorders, gloo's and NCCL's, the one that has
    more to say.
    """
    offset = float(about.get("at", 0.0)) - float(about.get("wall", 0.0))
    logs = []
    for dump in dumps:
        with contextlib.suppress(ValueError):
            log = flight_recorder.parse_dump(flight_recorder.load_dump(dump), "torch", offset)
            if log is not None:
                logs.append(log)
    fullest = max(logs, key=lambda log: len(log.operations), default=None)
    if fullest is None:
        return None
    numbers = {str(name): int(n) for name, n in dict(about.get("sequence", {})).items()}
    return replace(fullest, sequence={**fullest.sequence, **numbers})


def _add_from_files(
    ranks: Sequence[RankFacts], error_files: Mapping[RankId, str], since: float
) -> list[RankFacts]:
    """Return the ranks with what files say: the job's source, other tools' files. May block."""
    offset = time.monotonic() - time.time()
    read = []
    for facts in add_locks_of_others(list(map(add_source_code, ranks))):
        logs = list(facts.collectives)
        dump = external_tools.read_recorder_dump(facts.rank, facts.environment, since, offset)
        if dump is not None:
            logs.append(dump)
        failure = None
        if facts.rank in error_files and not facts.error and facts.left:
            failure = external_tools.read_error_file(error_files[facts.rank])
        read.append(
            replace(
                facts,
                collectives=tuple(logs),
                error=failure.error if failure else facts.error,
                traceback=failure.traceback if failure else facts.traceback,
            )
        )
    return read


def _add_printed_lines(
    ranks: Sequence[RankFacts], error_files: Mapping[RankId, str]
) -> list[RankFacts]:
    """Return the ranks with the last lines of their own output. May block."""
    printers = [
        PrintingRank(r.rank, r.pid if r.alive else None, error_files.get(r.rank)) for r in ranks
    ]
    found = read_printed_lines(printers)
    return [replace(r, output=(*r.output, *found.get(r.rank, ()))) for r in ranks]


async def _ask_ras_service(ranks: Sequence[RankFacts], ended: Ended) -> RasFacts:
    from ..collect.looks import RasFacts, ask_ras

    living = [r for r in ranks if r.alive and r.pid is not None]
    return RasFacts() if ended in ("crash", "interrupted") else await ask_ras(living)
