"""What libraries know of ranks that stand still: what NCCL and its watchdog printed to files, what
torch's flight recorder holds, and which kernels their GPUs run.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from ..base.deadline import call_with_limit
from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.rank_facts import CollectiveLog, NcclFacts, RankFacts
from ..base.words import format_ranks
from ..evidence.gpus.gpu_stacks import dump_gpu, read_kernels, why_no_dump
from ..evidence.gpus.nccl_lines import RankedLine, collect_nccl_facts, describe_nccl_lines
from ..evidence.gpus.recorder_queries import (
    ask_debug_pages,
    ask_recorders,
    find_debug_server,
    read_left_dumps,
)
from ..evidence.gpus.watchdog_messages import find_time_of_year, make_watchdog_logs
from ..evidence.library_output import LibraryOutput, read_library_output
from ..evidence.printed_warnings import describe_printed_warnings, select_recent

# Whose warnings are of the hang itself: a store that could not be reached may be reached since.
_OF_THE_HANG = ("vLLM", "SGLang", "torch")
FILES_LIMIT = 1.0  # seconds: the files may lie on a disk that does not answer


@dataclass(frozen=True)
class LibraryFacts:
    """Sentences for the verdict, and by rank what its libraries printed."""

    notes: tuple[str, ...] = ()
    said: Mapping[RankId, tuple[str, ...]] = field(default_factory=dict)  # by vLLM, SGLang, torch
    logs: Mapping[RankId, CollectiveLog] = field(default_factory=dict)
    nccl: Mapping[RankId, NcclFacts] = field(default_factory=dict)


async def read_library_facts(
    ranks: Sequence[RankFacts],
    started: float,
    error_files: Mapping[RankId, str] | None = None,
    limit: float = FILES_LIMIT,
) -> LibraryFacts:
    """Return what the libraries of these ranks, all of this machine, printed since the job began
    (`started`, monotonic clock), as far as that is read within `limit` seconds. Never raises.
    """
    since = time.time() - (time.monotonic() - started)
    found = LibraryOutput()
    with contextlib.suppress(TimeoutError, RuntimeError):
        await call_with_limit(
            read_library_output,
            ranks,
            since,
            found,
            error_files,
            limit=limit,
            key="library output",
        )
    lines = list(found.nccl_lines)
    warnings = select_recent(list(found.warnings), find_time_of_year(time.time()))
    said: dict[RankId, dict[str, None]] = {}
    for one, rank in warnings:
        if rank is not None and one.who in _OF_THE_HANG:
            said.setdefault(rank, {})[one.text] = None
    return LibraryFacts(
        (
            *describe_nccl_lines(_drop_large_communicators(lines, len(ranks))),
            *describe_printed_warnings(warnings),
        ),
        {rank: tuple(texts) for rank, texts in said.items()},
        make_watchdog_logs({rank: tuple(said) for rank, said in dict(found.messages).items()}),
        collect_nccl_facts(lines),
    )


def _drop_large_communicators(lines: Sequence[RankedLine], most: int) -> list[RankedLine]:
    """Return the lines without those of communicators with more ranks than were read: of the others
    nothing is known, and nothing is to be said.
    """
    return [(one, rank) for one, rank in lines if one.making is None or one.making[1] <= most]


def add_library_facts(ranks: Sequence[RankFacts], found: LibraryFacts) -> list[RankFacts]:
    """Return the ranks with what their libraries printed; warnings stand before what else a rank
    wrote, unless they are among it.
    """
    return [_add_to_rank(facts, found) for facts in ranks]


def _add_to_rank(facts: RankFacts, found: LibraryFacts) -> RankFacts:
    log, nccl = found.logs.get(facts.rank), found.nccl.get(facts.rank, facts.nccl)
    texts = [(text, f"NCCL WARN {text}") for text in nccl.warnings]
    texts += [(text, text) for text in found.said.get(facts.rank, ())]
    told = [line for text, line in texts if not any(text in one for one in facts.output)]
    return replace(
        facts,
        nccl=nccl,
        output=(*told, *facts.output),
        collectives=facts.collectives if log is None else (*facts.collectives, log),
    )


RECORDER_LIMIT = (
    4.0  # seconds: a rank looks into its pipe once a second, and then writes its stacks as well
)


async def add_recorder_dumps(
    ranks: Sequence[RankFacts],
    limit: float = RECORDER_LIMIT,
    started: float | None = None,
    world: int = 0,
) -> tuple[list[RankFacts], tuple[str, ...]]:
    """Return (the ranks with what their recorders wrote when asked, else what they have left in
    files since the job `started` (monotonic clock; None: no files); in sentences who was asked in
    vain). Takes `limit` seconds and a little where a rank that has such a pipe does not answer, and
    as much where a server does not; no time without. Never raises.
    """
    logs: dict[RankId, CollectiveLog] = {}
    silent: list[RankId] = []
    with contextlib.suppress(TimeoutError, RuntimeError):
        await call_with_limit(
            ask_recorders, ranks, logs, limit, silent, limit=limit + 0.5, key="recorder pipes"
        )
    found = dict(logs)
    notes = []
    if silent:
        notes.append(
            f"torch's flight recorder of {format_ranks(silent)} was asked over its pipe, and wrote "
            f"no dump in {limit:g} s"
        )
    if server := find_debug_server([facts for facts in ranks if facts.alive]):
        answers, said = await _ask_server(*server, limit)
        found = {**answers, **found}
        notes += said
    if started is not None:
        since = time.time() - (time.monotonic() - started)
        left = dict(found)
        with contextlib.suppress(TimeoutError, RuntimeError):
            await call_with_limit(
                read_left_dumps, ranks, left, since, world, limit=FILES_LIMIT, key="recorder files"
            )
        found = dict(left)
    return [
        replace(facts, collectives=(*facts.collectives, found[facts.rank]))
        if facts.rank in found
        else facts
        for facts in ranks
    ], tuple(notes)


async def _ask_server(
    host: str, port: int, limit: float
) -> tuple[dict[RankId, CollectiveLog], list[str]]:
    """Return (the logs that the server has, in a sentence what it has not)."""
    offset = time.monotonic() - time.time()
    who = f"the server of torch.distributed.debug at {host}:{port}"
    try:
        logs, silent = await call_with_limit(
            ask_debug_pages, host, port, limit, offset, limit=limit + 0.5, key="debug pages"
        )
    except (TimeoutError, RuntimeError):
        return {}, [f"{who} gave no page in {limit:g} s"]
    if not logs and not silent:
        return {}, [f"{who} gave no dump of torch's flight recorder"]
    why = next(iter(silent.values()), "")
    said = [f"{who} has no dump of {format_ranks([*silent])}: {why}"] if silent else []
    return dict(logs.items()), said


GPU_DUMP_LIMIT = 30.0  # seconds for a dump, and as many to read it
_MOST_RANKS = 8  # that are asked, those first that compute: each one's GPU stands for the moment


async def add_gpu_kernels(
    ranks: Sequence[RankFacts], limit: float = GPU_DUMP_LIMIT
) -> tuple[list[RankFacts], tuple[str, ...]]:
    """Return the ranks with the kernels that their GPUs run, and sentences: what runs, and of whom
    it is not known and why. At most eight ranks are asked, side by side, in twice `limit` seconds.
    Never raises.
    """
    chosen = sorted(ranks, key=lambda facts: not facts.busy)[:_MOST_RANKS]
    answers = await asyncio.gather(*(_ask_kernels(facts, limit) for facts in chosen))
    found = {facts.rank: facts for facts, _ in answers}
    notes = dict.fromkeys(note for _, note in answers)
    return [found.get(facts.rank, facts) for facts in ranks], tuple(notes)


async def _ask_kernels(facts: RankFacts, limit: float) -> tuple[RankFacts, str]:
    no = why_no_dump(facts)
    if no:
        return facts, f"the GPU of rank {facts.rank} was not asked: {no}"
    dump: Path | None = None
    with contextlib.suppress(TimeoutError, RuntimeError):
        dump = await call_with_limit(
            dump_gpu, facts, limit, limit=limit + 1.0, key=f"GPU dump {facts.pid}"
        )
    if dump is None:
        return facts, f"the GPU of rank {facts.rank}: no core dump in {limit:g} s"
    try:
        kernels = await call_with_limit(
            read_kernels, dump, limit, limit=limit + 2.0, key=f"GPU debugger {facts.pid}"
        )
    except (TimeoutError, RuntimeError):  # TimeoutError is an OSError as well
        kernels = None
    except OSError:
        return facts, _tell_how(facts, dump, "there is no cuda-gdb here to read it")
    if kernels is None:
        return facts, _tell_how(facts, dump, "cuda-gdb did not come to an end")
    with contextlib.suppress(OSError):
        dump.unlink()
    said = ", ".join(kernels) or "no kernel"
    return replace(facts, gpu_kernels=kernels), f"the GPU of rank {facts.rank} runs {said}"


def _tell_how(facts: RankFacts, dump: Path, why: str) -> str:
    return (
        f"the GPU core dump of rank {facts.rank} is {dump}; {why}: cuda-gdb --batch -ex 'target "
        f"cudacore {dump}'"
    )
