"""The run folder and the words of a verdict that was made from outside the ranks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..rank.lines import write_within
from ..report.as_json import as_json
from ..report.terminal import culprit_stack, verdict_lines
from .announcing import terminal_width
from .departures import STATES_AFTER
from .on_disk import write_looks
from .run_folder import RunFolder

if TYPE_CHECKING:
    from ..diagnosis.graph import WaitGraph
    from ..facts import JobFacts, RankFacts, Verdict
    from .outer import Around

PRINT_LIMIT = 1.0  # seconds for a reader to take what we print


async def report_from_outside(
    around: Around,
    folder: str,
    verdict: Verdict,
    facts: JobFacts,
    ranks: Sequence[RankFacts],
    graph: WaitGraph,
) -> str:
    """Write the verdict and what it rests on, first into `folder`; then print it. Return where the
    files are.
    """
    files = _run_folder(around, folder)
    write_looks(files, facts, graph, ranks)
    files.write_json("verdict.json", as_json(verdict))
    where = await _published(files)
    if around.answers:
        _print(1, json.dumps(as_json(verdict), ensure_ascii=False))
        return where
    width = terminal_width()
    state = STATES_AFTER[around.on_hang].format(
        pids=", ".join(f"{one.pid} (rank {one.rank})" for one in ranks)
    )
    lines = verdict_lines(verdict, facts, ranks, run_dir=where, state=state, width=width)
    stack = culprit_stack(ranks, verdict) if width is None else []
    _print(2, "\n".join([*lines, *stack]))
    return where


async def write_from_outside(around: Around, folder: str, verdict: Verdict) -> str:
    """Write a verdict that there is nothing to be said of, first into `folder`. Return where the
    files are.
    """
    files = _run_folder(around, folder)
    files.write_json("verdict.json", as_json(verdict))
    return await _published(files)


def print_answer(folder: Path) -> None:
    """Print the verdict in a run folder, if it can be read, as JSON on stdout: the monitor of a
    script of the user's own leaves stdout to that.
    """
    with suppress(OSError, ValueError):
        verdict = json.loads((folder / "verdict.json").read_text(encoding="utf-8"))
        _print(1, json.dumps(verdict, ensure_ascii=False))


def say(text: str) -> None:
    """Print a line on stderr."""
    _print(2, f"hangbisect: {text}")


async def _published(files: RunFolder) -> str:
    """Copy the files to the run folder, and return where they are; what has its copy is removed."""
    if not await files.publish():
        return str(files.stage)
    shutil.rmtree(files.stage, ignore_errors=True)
    return str(files.path)


def _run_folder(around: Around, folder: str) -> RunFolder:
    return RunFolder(Path(folder) / "run", around.run_dir)


def _print(descriptor: int, text: str) -> None:
    write_within(descriptor, f"{text}\n".encode(errors="replace"), PRINT_LIMIT)
