"""What one machine tells of a job: the facts that a verdict is made of, there or elsewhere.

Of ranks that wait for one another in different calls the one that came least far is to blame. In
a script that nobody watched only what comes after all preparation can be told from a stack:
training, and the end.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from ..base.checkpoints import Checkpoint
from ..base.deadline import call_with_limit
from ..base.environment import relevant
from ..base.identity import RankId, UnknownRank, name_rank, native_file
from ..base.launchers import DIALECTS, find_launcher
from ..base.lazy_dataclass import dataclass
from ..base.rank_facts import MachineFacts, RankFacts, RestartedProcess
from ..base.words import format_ranks
from ..collect.library_facts import (
    LibraryFacts,
    add_gpu_kernels,
    add_library_facts,
    add_recorder_dumps,
    read_library_facts,
)
from ..collect.looks import RankClasses, RasFacts, add_ras_logs, ask_ras
from ..collect.source_facts import OUTPUT_LIMIT, add_printed_lines, add_source_facts
from ..diagnosis.case import make_unseen_rank
from ..diagnosis.causes.known_cause import find_frame
from ..diagnosis.process.process_snapshot import merge_looks
from ..evidence.native_threads import list_tools, read_native_threads
from ..evidence.process import exit_code, family, is_gone
from ..evidence.rank_parents import describe_busy_parent, list_server_processes
from ..evidence.ray_cluster import find_actors, leave_out_services
from ..monitor.ending import resume_process
from .job_looks import STILL_SPAN, Download, JobLooks
from .jobs import Job
from .processes import ProcessTable
from .restarts import find_failing_children, find_restarted
from .watched_ranks import read_watched_ranks

UNKNOWN_PROGRESS, TRAINING_PROGRESS, ENDED_PROGRESS = 0, 1, 2
_TRAINING_FRAMES = (
    (r"torch/(?:autograd/graph|_tensor)\.py", r"_engine_run_backward|backward"),
    (r"torch/optim/optimizer\.py", r"wrapper|step"),
    (r"torch/nn/parallel/distributed\.py", r"forward|_run_ddp_forward"),
    (
        r"(?:pytorch_lightning|lightning/pytorch)/loops/(?:training_epoch_loop|fit_loop)\.py",
        r"advance",
    ),
    (r"transformers/trainer\.py", r"_inner_training_loop|training_step"),
)


def find_progress(facts: RankFacts) -> int:
    """Return TRAINING_PROGRESS for a rank whose stack shows training, else UNKNOWN_PROGRESS."""
    view = merge_looks(facts.looks)
    frames = view.frames if view is not None else ()
    trains = any(find_frame(frames, file, function) for file, function in _TRAINING_FRAMES)
    return TRAINING_PROGRESS if trains else UNKNOWN_PROGRESS


# What a launcher counts: of Slurm's and MPI's own variables some are no more than a limit.
_LOCAL_SIZE = DIALECTS["torchrun"].local_world_size


@dataclass(frozen=True)
class NodeFacts:
    """What one machine tells of a job. Times are those of that machine's monotonic clock."""

    host: str
    command: tuple[str, ...]
    world: int
    whole: bool  # no rank is to be on another machine
    age: float  # seconds since its first rank started
    at: float  # when the last look was taken
    span: float  # seconds from the first look to the last
    ranks: tuple[RankFacts, ...]
    launcher: int | None = None  # where no rank has started: the launcher stands in for rank 0
    moving: tuple[RankId, ...] = ()
    busy: tuple[RankId, ...] = ()
    quiet: tuple[RankId, ...] = ()  # nothing of them moved, and they wait for no other rank
    watched: str | None = None
    table: tuple[Checkpoint, ...] = ()  # where a monitor tells in which step each rank is
    notebook: int | None = None
    machine: MachineFacts = field(default_factory=MachineFacts)
    downloads: tuple[Download, ...] = ()  # as they were at the last look
    starting: str = ""  # which program may start more ranks yet, in words
    notes: tuple[str, ...] = ()
    said: tuple[str, ...] = ()  # what libraries and GPUs tell
    restarted: RestartedProcess | None = None  # by the log that it has left


@dataclass(frozen=True)
class Wanted:
    """What a person asks for besides: each stops something for the moment."""

    gpu_stacks: bool = False  # which kernels the GPUs of up to eight ranks run
    native_threads: bool = False  # the native frames of all threads of two ranks at the most


async def look_at_job(
    job: Job, processes: ProcessTable, span: float = STILL_SPAN, wanted: Wanted | None = None
) -> NodeFacts:
    """Look at a job until it is clear whether it moves, and return what was seen. If it does not,
    the last look is at native frames as well, which pauses two ranks at most for 20 to 400 ms, and
    what is `wanted` besides is asked for.
    """
    ranks = _identify_ranks(job, socket.gethostname())
    roots = list(ranks)

    def descendants() -> Mapping[int, int]:
        below = family(roots)
        # A rank that is the first process of a container has adopted the monitor that watches it.
        watchers = {pid for pid in below if pid in processes and processes[pid].is_monitor}
        watchers |= family(watchers).keys()
        below = {pid: root for pid, root in below.items() if pid not in watchers}
        shown = {pid: below[pid] for pid in leave_out_services(below)}
        if len(roots) == 1 and len(shown) == len(below):  # a driver of Ray, perhaps
            shown = {**dict.fromkeys(find_actors(roots[0]), roots[0]), **shown}
        beside = list_server_processes(roots)
        return {**{pid: pid for pid in roots}, **dict.fromkeys(beside, roots[0]), **shown}

    environment = {
        rank: relevant(one.environ)
        for pid, rank in ranks.items()
        if (one := processes.get(pid)) is not None and one.environ
    }
    series = JobLooks(job, ranks, descendants, environment)
    settled = await series.take(span)
    if not settled.moving and job.ranks:
        await series.look_deeper(sorted(settled.hung | settled.busy))
        settled = series.settled() if settled.busy else settled  # a spin may wait for others
    wanted = Wanted() if wanted is None or settled.moving else wanted
    return await _make_node_facts(job, processes, series, settled, wanted)


async def _add_native_threads(
    ranks: Sequence[RankFacts], pids: Collection[int]
) -> tuple[list[RankFacts], tuple[str, ...]]:
    """Return the ranks, those of these processes with the native frames of all their threads; and
    where they are to be found, or why there are none, as sentences.
    """
    found, notes = [], []
    for facts in ranks:
        if facts.pid is not None and facts.pid in pids:
            text, why = await read_native_threads(facts.pid, list_tools(facts.pid))
            resume_process(facts.pid)
            facts = replace(facts, native_threads=text)
            where = f"are in {native_file(facts.rank)}"
            said = where if text else f"were not read: {why}"
            notes.append(f"the native frames of all threads of {name_rank(facts.rank)} {said}")
        found.append(facts)
    return found, tuple(notes)


def _identify_ranks(job: Job, host: str) -> dict[int, RankId]:
    """Return who each rank is by its pid, those that have a number first."""
    if not job.ranks:
        return {job.launchers[0]: 0}
    found: dict[int, RankId] = {r.pid: r.number for r in job.ranks if r.number is not None}
    return found | {r.pid: UnknownRank(host, r.pid) for r in job.ranks if r.number is None}


async def _make_node_facts(
    job: Job, processes: ProcessTable, series: JobLooks, settled: RankClasses, wanted: Wanted
) -> NodeFacts:
    host = socket.gethostname()
    ranks = [_add_place(f, job, processes, host) for f in series.last_snapshot.ranks]
    told = await read_watched_ranks(job, processes) if job.watched is not None else None
    ranks = ranks if told is None else told.add_to(ranks)
    ras = RasFacts() if settled.moving else await ask_ras(ranks, job.world)
    ranks = add_ras_logs(ranks, ras)
    in_vain: tuple[str, ...] = ()
    if not settled.moving:
        ranks, in_vain = await add_recorder_dumps(ranks, started=job.began, world=job.world)
    ranks, kernels = await add_gpu_kernels(ranks) if wanted.gpu_stacks else (ranks, ())
    native: tuple[str, ...] = ()
    if wanted.native_threads:
        pids = series.choose_to_pause(settled.hung | settled.busy)
        ranks, native = await _add_native_threads(ranks, pids)
    ranks = await add_printed_lines([*ranks, *_find_absent_ranks(job, processes, ranks, host)])
    ranks = await add_source_facts(ranks)
    now = time.monotonic()
    tries = await find_failing_children(job.ranks, processes, ranks)
    # What comes and goes below who starts it moves nothing on.
    ended = {facts.rank for facts in ranks if not facts.alive}
    moving = settled.moving - tries.keys()
    ranks = [replace(f, moved="", busy=False) if f.rank in tries else f for f in ranks]
    restarted = next(iter(tries.values()), None)
    if restarted is None and not moving:
        restarted = series.ended.find_restarted() or await _find_restarted(job, ranks, now)
    printed = LibraryFacts() if settled.moving else await read_library_facts(ranks, job.began)
    ranks = add_library_facts(ranks, printed)
    return NodeFacts(
        host=host,
        command=job.command,
        world=max(job.world, len(job.ranks)),
        whole=job.whole,
        age=max(0.0, now - job.began),
        at=now,
        span=series.span,
        ranks=tuple(sorted(ranks, key=lambda facts: facts.rank)),
        launcher=None if job.ranks else job.launchers[0],
        moving=tuple(sorted(moving)),
        busy=tuple(sorted(settled.busy - tries.keys() - ended)),
        quiet=tuple(sorted(settled.hung)),
        watched=job.watched,
        table=() if told is None else told.table,
        notebook=job.notebook,
        machine=series.machine,
        starting=await _describe_starting(job, processes, ranks),
        restarted=restarted,
        notes=(*_note_absent_ranks(ranks), *native),
        said=(*ras.notes, *in_vain, *printed.notes, *kernels),
        downloads=tuple(
            replace(file[-1], grew=file[-1].size > file[0].size) for file in series.grown.values()
        ),
    )


async def _find_restarted(
    job: Job, ranks: Sequence[RankFacts], now: float
) -> RestartedProcess | None:
    try:
        return await call_with_limit(
            find_restarted,
            job.pids,
            ranks,
            now - job.began,
            limit=OUTPUT_LIMIT,
            key="what is started again",
        )
    except TimeoutError:
        return None


def _add_place(facts: RankFacts, job: Job, processes: ProcessTable, host: str) -> RankFacts:
    """Return a rank with what is known of it besides its looks."""
    rank = next((r for r in job.ranks if r.pid == facts.pid), None)
    number = facts.rank if isinstance(facts.rank, int) else 0
    one = processes.get(facts.pid or 0)
    return replace(
        facts,
        host=host,
        local_rank=number if rank is None or rank.local is None else rank.local,
        never_started=one is not None and not one.python and rank is not None,
        **_describe_end(facts),
    )


def _describe_end(facts: RankFacts) -> dict[str, Any]:
    """Return how a rank ended, if it did while it was looked at: its parent has not noticed yet, or
    has, and nothing of it is there any more. What ends is seen to run for a moment.
    """
    last = facts.looks[-1] if facts.looks else None
    if last is not None and last.state not in ("", "Z", "X") and facts.pid is not None:
        since = last.sample.started if last.sample is not None else None
        if not is_gone(facts.pid, since):
            return {"alive": True, "reached": find_progress(facts)}
    status = exit_code(facts.pid) if facts.pid is not None else None
    return {"alive": False, "left": True, "status": status, "reached": ENDED_PROGRESS}


def _find_absent_ranks(
    job: Job, processes: ProcessTable, ranks: list[RankFacts], host: str
) -> list[RankFacts]:
    """Return the ranks that have ended, as far as one can tell: those that are to be here, and are
    not.
    """
    if not job.ranks or any(rank.number is None for rank in job.ranks):
        return []
    there = {facts.rank for facts in ranks}
    missing = [number for number in list_ranks_of_machine(job, processes) if number not in there]
    if not missing:
        return []
    parents = {rank.launcher for rank in job.ranks}
    zombies = [p for p, one in processes.items() if one.state == "Z" and one.ppid in parents]
    zombie = zombies[0] if len(zombies) == len(missing) == 1 else None
    status = exit_code(zombie) if zombie is not None else None
    agents = {one.launcher for p in parents if (one := processes.get(p or 0)) is not None}
    if status is None and any(find_launcher(name).ends_all for name in agents):
        status = 0
    return [make_absent_rank(number, status, zombie, host) for number in missing]


def list_ranks_of_machine(job: Job, processes: ProcessTable) -> range:
    """Return the ranks that are to be on this machine, as all of them are, or as their launcher
    counts and orders them; an empty range where that is not known.
    """
    if job.whole:
        return range(job.world)
    first, *others = {(rank.number or 0) - (rank.local or 0) for rank in job.ranks}
    sizes = {
        (one.environ or {}).get(_LOCAL_SIZE, "") if (one := processes.get(rank.pid)) else ""
        for rank in job.ranks
    }
    size = next(iter(sizes))
    if others or len(sizes) > 1 or not size.isdecimal() or any(r.local is None for r in job.ranks):
        return range(0)
    found = range(first, first + int(size))
    is_sure = first >= 0 and found.stop <= job.world and len(job.ranks) <= len(found)
    return found if is_sure else range(0)


def _note_absent_ranks(ranks: list[RankFacts]) -> tuple[str, ...]:
    found = [facts.rank for facts in ranks if facts.never_started and facts.pid is None]
    if not found:
        return ()
    return (f"not there, and whether ever started is not known: {format_ranks(found)}",)


def make_absent_rank(number: int, status: int | None, pid: int | None, host: str) -> RankFacts:
    """Return a rank that is not there: it has ended, or, as far as one can tell, never came."""
    if status is None:
        return replace(make_unseen_rank(number, host), local_rank=number)
    return RankFacts(
        number, number, pid, host, reached=ENDED_PROGRESS, alive=False, left=True, status=status
    )


async def _describe_starting(job: Job, processes: ProcessTable, ranks: Sequence[RankFacts]) -> str:
    """Return which program may start more of the ranks, "" where none is missing, or where a
    launcher started them: that starts all at once.
    """
    missing = [one for one in ranks if one.never_started and one.pid is None]
    parents = {rank.launcher for rank in job.ranks}
    if not missing or any(one.launcher for p in parents if (one := processes.get(p or 0))):
        return ""
    return await describe_busy_parent([rank.pid for rank in job.ranks])
