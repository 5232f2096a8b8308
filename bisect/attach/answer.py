"""What `attach` prints: the list of this machine's jobs (how long they run, and whether they move).
The answer on one that was looked at, as lines, as JSON, and in a run folder with the same files as
that of a job that was watched.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..base.deadline import call_with_limit
from ..base.files import stamp
from ..base.identity import RankId
from ..base.json_codec import to_json
from ..base.launchers import RANK_VARIABLES
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Sample
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Verdict
from ..base.words import (
    cut_line,
    format_count,
    format_ranks,
    format_seconds,
    join_lines,
    printable,
)
from ..evidence import movement
from ..evidence.lock_and_log_files import identify_files
from ..evidence.process import family, sample
from ..evidence.ray_cluster import leave_out_services
from ..monitor.rank_exits import NOT_PROVED, UNPROVED
from ..monitor.run_folder import RunFolder
from ..monitor.verdict_output import write_environment, write_looks
from ..report.rows import format_answer, make_rows
from ..report.verdict_rows import short_stack, word_verdict
from .job_search import FoundJobs
from .jobs import Job
from .judgement import Judgement

SAMPLE_PAUSE = 1.0  # seconds between two samples
_SAMPLE_LIMIT = 1.0  # seconds for one of them
_TICKS = os.sysconf("SC_CLK_TCK")
_COMMAND_WIDTH = 46  # characters of it
NEXT_COMMANDS = (
    ("hangbisect attach {pid}", "what hangs, and why: it looks, and ends nothing"),
    ("hangbisect run -- COMMAND", "the next start, watched"),
    ("hangbisect doctor", "this machine, before anything hangs"),
)


async def list_jobs(found: FoundJobs) -> list[str]:
    """Return the jobs, a line each, and the next commands."""
    if not found.jobs:
        return [*no_job_lines(found), "", *_next_command_lines("PID")]
    last = await describe_last_movements(found.jobs)
    count = len(found.jobs)
    head = f"{count} job{'s' * (count != 1)} run{'s' * (count == 1)} here"
    pid = found.jobs[0].pid if count == 1 else "PID"
    return [head, *map(_job_row, found.jobs, last), "", *_next_command_lines(pid)]


@dataclass(frozen=True)
class LastMovement:
    """Whether anything of a job moves, in words, and as far as that could be read."""

    text: str
    moves: bool | None = None


async def describe_last_movements(jobs: Sequence[Job]) -> list[LastMovement]:
    """Return of each job what moves right now, else when something of it was written last."""
    return list(await asyncio.gather(*(_describe_last_movement(job) for job in jobs)))


def find_only_still(
    jobs: Sequence[Job], last: Sequence[LastMovement], ends: bool = False
) -> Job | None:
    """Return the job that stands still where all others are seen to move, else None; and None where
    it is to be ended, for that somebody has to name.
    """
    if ends:
        return None
    still = [job for job, one in zip(jobs, last, strict=True) if one.moves is False]
    is_told = all(one.moves is not None for one in last)
    return still[0] if len(still) == 1 and is_told else None


def no_job_lines(found: FoundJobs) -> list[str]:
    """Return what was looked for, where no job was found."""
    others = (
        f" Of {found.others} Python processes of other users nothing may be read: ask as that user "
        "or as root."
        if found.others
        else ""
    )
    return [
        "No job runs here that can be seen: no process has a rank in its environment "
        f"({', '.join(RANK_VARIABLES)}), none of Lightning's or multiprocessing's "
        f"ranks, no launcher, and no Python that has loaded torch.{others}"
    ]


def choice_lines(jobs: Sequence[Job], last: Sequence[LastMovement]) -> list[str]:
    """Return several jobs, a line each, and how one is chosen."""
    return [
        f"{len(jobs)} jobs run here:",
        *map(_job_row, jobs, last),
        "",
        *_next_command_lines("PID")[:1],
    ]


def _job_row(job: Job, last: LastMovement) -> str:
    command = join_lines(" ".join(job.command)) or "?"
    command = command if len(command) <= _COMMAND_WIDTH else f"{command[: _COMMAND_WIDTH - 3]}..."
    ranks = describe_ranks([rank.number for rank in job.ranks], job.world)
    kind = ", notebook" if job.notebook is not None else ""
    kind += ", watched" if job.watched is not None else ""
    runs = f"{format_age(job.started, _TICKS)} old"
    return f"  {job.pid:<8} {command:<{_COMMAND_WIDTH}}  {ranks}{kind}, {runs}  {last.text}"


def _next_command_lines(pid: object) -> list[str]:
    lines = [(command.format(pid=pid), text) for command, text in NEXT_COMMANDS]
    return [
        f"{'next' if number == 0 else '':<6}{command:<26} {text}"
        for number, (command, text) in enumerate(lines)
    ]


async def _describe_last_movement(job: Job) -> LastMovement:
    before = await _read_samples(job)
    await asyncio.sleep(SAMPLE_PAUSE)
    after = await _read_samples(job)
    for pid, new in after.items():
        old = before.get(pid)
        stirs = movement.compare_samples(old, new) if old is not None else "was started"
        if stirs:
            return LastMovement(f"moves: {_name_member(job, pid)} {stirs}", True)
    written = await _age_of_last_output(job)
    said = f", printed {format_seconds(written)} ago" if written is not None else ""
    text = f"nothing moved in {format_seconds(SAMPLE_PAUSE)}{said}"
    return LastMovement(text, False if after else None)


def _name_member(job: Job, pid: int) -> str:
    rank = next((r for r in job.ranks if r.pid == pid), None)
    if rank is None:
        return f"process {pid}"
    return f"rank {'?' if rank.number is None else rank.number}"


async def _read_samples(job: Job) -> Mapping[int, Sample]:
    def read() -> dict[int, Sample]:
        ranks = [rank.pid for rank in job.ranks] or list(job.launchers)
        pids = leave_out_services([*ranks, *sorted(family(ranks))])
        return {pid: one for pid in pids if (one := sample(pid)) is not None}

    try:
        return await call_with_limit(read, limit=_SAMPLE_LIMIT, key=("samples", job.pid))
    except TimeoutError:
        return {}


async def _age_of_last_output(job: Job) -> float | None:
    """Return how long ago the output of a job was written to, where that goes to a file, and not
    to the same one as ours.
    """

    def read() -> float | None:
        times, ours = [], identify_files((1, 2))
        for rank in job.ranks:
            for number in (1, 2):
                path = f"/proc/{rank.pid}/fd/{number}"
                try:
                    about = os.stat(path)
                    is_ours = (about.st_dev, about.st_ino) in ours
                    if stat.S_ISREG(about.st_mode) and not is_ours:
                        times.append(about.st_mtime)
                except OSError:
                    continue
        return max(0.0, time.time() - max(times)) if times else None

    try:
        return await call_with_limit(read, limit=_SAMPLE_LIMIT, key=("output", job.pid))
    except TimeoutError:
        return None


_MOST_OTHER_STACKS = 3  # of further ranks at fault


def hang_lines(
    found: Judgement, run_dir: str, state: str, width: int | None, again: bool = True
) -> list[str]:
    """Return the verdict on a job that hangs, computes in the same few places, or compiles.
    `again`: its command starts it again.
    """
    answer = word_verdict(
        found.verdict, found.facts, found.ranks, run_dir=run_dir, state=state, is_provable=again
    )
    others = _describe_other_stacks(found)
    rows = [replace(row, detail=others) if row.label == "stack" else row for row in answer.rows]
    if found.verdict.outcome == "slow" and not found.moving:
        rows[:0] = make_rows("busy", _describe_busy_ranks(found))
    at = next((n for n, row in enumerate(rows) if row.label == "job"), len(rows))
    rows[at:at] = make_rows("silent", describe_silence(found))
    lines = format_answer(replace(answer, rows=tuple(rows)))
    return [cut_line(line, width) for line in lines]


def _describe_other_stacks(found: Judgement) -> tuple[str, ...]:
    """Return where the other ranks at fault are, if not where the first one is."""
    blamed = [r for r in found.ranks if r.rank in found.verdict.ranks.culprit]
    ranks_at: dict[str, list[RankId]] = {}
    for one in blamed:
        ranks_at.setdefault(short_stack(one, found.facts), []).append(one.rank)
    others = [(where, ranks) for where, ranks in list(ranks_at.items())[1:] if where]
    lines = [f"{format_ranks(ranks)}: {where}" for where, ranks in others[:_MOST_OTHER_STACKS]]
    left = len(others) - _MOST_OTHER_STACKS
    return (*lines, *([f"and {format_count(left, 'place')} more"] if left > 0 else []))


def _describe_busy_ranks(found: Judgement) -> str:
    busy = [r.rank for r in found.ranks if r.busy]
    still = format_seconds(found.facts.still or 0.0)
    verb = "computes" if len(busy) == 1 else "compute"
    return (
        f"{format_ranks(busy)} {verb} in the same few places for {still}: at work, or a loop "
        "without end. --for 60 tells"
    )


def moving_lines(found: Judgement, width: int | None = None) -> list[str]:
    """Return what moves, and what does not: "moving: rank 3 reads 40 MiB/s; ranks 0-2 wait"."""
    moves = [r for r in found.ranks if r.rank in found.moving and r.moved]
    first = moves[0] if moves else None
    text = f"moving: rank {first.rank} {first.moved}" if first else "moving"
    rest = [r.rank for r in moves[1:]]
    text += f"; {format_ranks(rest)} too" if rest else ""
    moving = {*found.moving, *found.quiet}
    waiting = [r.rank for r in found.ranks if r.alive and r.rank not in moving]
    text += (
        f"; {format_ranks(waiting)} {'waits' if len(waiting) == 1 else 'wait'}" if waiting else ""
    )
    lines = [text, *(_quiet_line(found, r) for r in found.ranks if r.rank in found.quiet)]
    return [cut_line(printable(line), width) for line in lines]


def _quiet_line(found: Judgement, facts: RankFacts) -> str:
    stack = short_stack(facts, found.facts)
    where = f": {stack}" if stack else ""
    return f"        rank {facts.rank} has not moved meanwhile{where}"


def describe_state(pid: int, notebook: int | None, watched: bool, ends: bool = False) -> str:
    """Return what a job is left in, and how it can be ended. The kernel of a notebook is not ours
    to end, nor to offer. `ends`: it was asked to be ended.
    """
    if notebook is not None:
        return (
            "still running, untouched; interrupt the cell: the notebook's kernel "
            f"({notebook}) is left alone"
        )
    if ends:
        return "being ended, as asked: all ranks and their children"
    seen = "untouched, watched since its start" if watched else "untouched"
    return f"still running, {seen}; end it: hangbisect attach {pid} --kill"


def describe_silence(found: Judgement) -> str:
    """Return in words that nothing proves a hang, and how long the wait lasts at the most; "" of a
    hang.
    """
    if found.verdict.outcome != "silent":
        return ""
    if found.silent_for is None:
        return NOT_PROVED
    left = format_seconds(max(0.0, found.silent_for))
    return f"{UNPROVED}: its wait ends by itself in {left}"


def format_age(started: int, ticks: int) -> str:
    """Return for how long a process has run: `started` in clock ticks after boot."""
    return format_seconds(max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / ticks))


def describe_ranks(numbers: Sequence[int | None], world: int) -> str:
    """Return which ranks of how many are here: "8 ranks", "ranks 0-3 of 8", "2 ranks (?)"."""
    known = [n for n in numbers if n is not None]
    if not numbers:
        return "no rank yet"
    if len(known) < len(numbers):
        return f"{format_count(len(numbers), 'rank')} (?)"
    if len(known) == max(world, 1):
        return format_count(len(known), "rank")
    return f"{format_ranks(known)} of {world}"


def new_run_dir(pid: int) -> Path:
    """Return where the files go unless somebody says so: runs/<UTC time>-<pid>."""
    return Path(os.path.abspath(os.path.join("runs", f"{stamp()}-{pid:x}")))


_MOST_NAMED = 16  # ranks whose looks are kept as the verdict names them


def _list_named_ranks(verdict: Verdict) -> list[RankId]:
    """Return the ranks that a verdict is about, those at fault first."""
    chain = [one.rank for one in verdict.where]
    return list(dict.fromkeys([*chain, *verdict.ranks.culprit]))[:_MOST_NAMED]


async def write_run_files(
    found: Judgement, run_dir: Path, merged: Sequence[str] = ()
) -> tuple[Path | None, list[str]]:
    """Write the verdict and what it rests on; return where it is, None for nowhere, and what has to
    be said: the folder may lie on the very file system that hangs. `merged` are further words for
    report.
    """
    files = RunFolder(None, run_dir)
    write_looks(files, found.facts, found.graph, found.ranks, _list_named_ranks(found.verdict))
    host = next((r.host for r in found.ranks if r.host), "")
    of_ranks = {r.rank: r.environment for r in found.ranks}
    write_environment(files, found.facts.versions, host, of_ranks)
    files.write_json("verdict.json", to_json(found.verdict))
    if merged:
        files.write("stacks/without-stacks.txt", "\n".join([*merged, ""]))
    await files.publish(first=True)
    files.close()
    return files.where, files.take_news() + files.losses()


_STATUSES = {"hang": 3, "silent": 4}  # exit status by outcome; 0 of what moves, or may be at work


@dataclass(frozen=True)
class AnswerOptions:
    """How an answer is wanted."""

    run_dir: Path | None  # None: a new folder; none for a job that moves
    as_object: bool  # the verdict as JSON, on stdout
    pid: int  # by which a new folder is named


def add_time(found: Judgement, began: float) -> Judgement:
    """Return a judgement with the time that it took since `began`, on the monotonic clock."""
    took = round(time.monotonic() - began, 3)
    seconds = replace(found.verdict.seconds, to_verdict=took)
    return replace(found, verdict=replace(found.verdict, seconds=seconds))


async def give_answer(
    found: Judgement,
    wanted: AnswerOptions,
    words: Callable[[str], Sequence[str]],
    further: Sequence[str] = (),
) -> tuple[int, str]:
    """Write what was found and say it; return the exit status, and where the files are, "" if
    they are nowhere. `words` are asked with that; `further` are for the run folder as well.
    """
    where = ""
    if not found.moving or wanted.run_dir is not None:
        place, said = await write_run_files(
            found, wanted.run_dir or new_run_dir(wanted.pid), further
        )
        where = str(place or "")
        for sentence in said:
            print(sentence, file=sys.stderr, flush=True)
    if wanted.as_object:
        print(json.dumps(to_json(found.verdict), ensure_ascii=False), flush=True)
    else:
        print("\n".join(words(where)), flush=True)
    return _STATUSES.get(found.verdict.outcome, 0), where
