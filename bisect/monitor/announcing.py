"""Saying the verdict: on the terminal, to the process in front of a lone rank, to torchelastic."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..report.as_json import as_json
from ..report.well import well_lines
from .departures import STATES_AFTER

if TYPE_CHECKING:
    from ..facts import JobFacts, RankFacts, Verdict
    from .job import Job


def print_verdict(
    job: Job,
    facts: JobFacts,
    verdict: Verdict,
    ranks: Sequence[RankFacts],
    published: bool,
    ending: bool,
) -> list[str]:
    folder = str(job.files.path if published else job.files.stage)
    if not published:
        job.say(f"The run folder could not be written: {job.files.trouble}; files are in {folder}")
    width = terminal_width()
    stack: list[str] = []
    if verdict.outcome == "ok":
        first = next(iter(job.members), None)
        missing = sorted(first.not_exercised) if first else []
        lines = well_lines(verdict, missing, _slowest(job), folder, width, own=job.own)
    else:
        from ..report.terminal import culprit_stack, verdict_lines

        state = _state(job, verdict, ending)
        lines = verdict_lines(verdict, facts, ranks, run_dir=folder, state=state, width=width)
        if width is None and verdict.outcome != "interrupted":
            stack = culprit_stack(ranks, verdict)
    if any(m.usage for m in job.members):
        return lines
    if job.settings["json"]:
        job.print_answer(json.dumps(as_json(verdict), ensure_ascii=False))
    else:
        job.print_answer("\n".join([*lines, *stack]))
    return lines


def _slowest(job: Job) -> str:
    """Return which step took longest, in words: "4 Tokenizer loaded 3.4 s (imports 3.3 s)"."""
    steps = [(took, n, m) for m in job.members for n, took in m.took.items()]
    if not steps:
        return ""
    took, number, member = max(steps, key=lambda step: step[0])
    if job.members.own is not None:
        return f"{job.members.own.title(number)} {took:.1f} s"
    title = next((c.title for c in job.table if c.number == number), "")
    importing = member.imports.get(number, 0.0)
    inside = f" (imports {importing:.1f} s)" if importing >= 0.1 else ""
    return f"{number} {title} {took:.1f} s{inside}"


def _state(job: Job, verdict: Verdict, ending: bool) -> str:
    if verdict.outcome == "ok":
        return ""
    if ending:
        return STATES_AFTER["end"]
    if verdict.outcome in ("crash", "interrupted"):
        return "left to its launcher"
    pids = ", ".join(f"{m.pid} (rank {m.rank})" for m in job.members if not m.left)
    return STATES_AFTER[job.settings["on_hang"]].format(pids=pids)


def terminal_width() -> int | None:
    try:
        return os.get_terminal_size(2).columns or None
    except OSError:
        return None


def say_outcome(job: Job, verdict: Verdict) -> None:
    """Tell the process in front of a lone rank, which gives the exit status."""
    pipe = job.settings.get("outcome_pipe")
    if pipe is not None:
        # Not left to its own status: a rank that has much to unload is ended before it is out.
        outcome = "usage" if any(m.usage for m in job.members) else verdict.outcome
        with contextlib.suppress(OSError):
            os.write(pipe, outcome.encode())
            os.close(pipe)
        job.settings["outcome_pipe"] = None


async def tell_torchelastic(job: Job, verdict: Verdict, lines: Sequence[str], since: float) -> None:
    """Fill the culprit's error file, so that torchrun's own last words carry the verdict.

    The form is that of torch/distributed/elastic/multiprocessing/errors/error_handler.py; the
    agent shows `py_callstack` of the failure with the earliest timestamp.
    """
    became_overdue = int(time.time() - (time.monotonic() - since))
    extra = {"py_callstack": "\n".join(lines), "timestamp": str(became_overdue)}
    content = json.dumps({"message": {"message": lines[0], "extraInfo": extra}})
    files = [m.error_file for m in job.members if m.rank in verdict.ranks.culprit and m.error_file]

    def write() -> None:
        for name in files[:1]:
            aside = Path(f"{name}.new")
            aside.write_text(content, encoding="utf-8")
            aside.replace(name)

    with contextlib.suppress(OSError, TimeoutError):
        await asyncio.wait_for(asyncio.to_thread(write), 1.0)
