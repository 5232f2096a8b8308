"""Which kernels the GPUs of ranks that stand still run: core dumps that CUDA writes on demand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..base.deadline import call_with_limit
from ..base.rank_facts import RankFacts
from ..evidence.gpu_stacks import dump_gpu, read_kernels, why_no_dump

LIMIT = 30.0  # seconds for a dump, and as many to read it
_MOST_RANKS = 8  # that are asked, those first that compute: each one's GPU stands for the moment


async def add_gpu_kernels(
    ranks: Sequence[RankFacts], limit: float = LIMIT
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
