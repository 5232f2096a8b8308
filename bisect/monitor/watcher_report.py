"""The run folder and the words of a verdict that was made from outside the ranks.

A file of its own: every `hangbisect run` loads it at its end, and few of them what judges
(watcher_verdict.py).
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.deadline import within
from ..base.json_codec import to_json
from ..base.words import terminal_width
from ..rank.lines import write_within
from ..rank.our_folders import holds_nothing
from ..report.terminal import culprit_stack, verdict_lines
from .rank_exits import NOT_PROVED, STATES_AFTER
from .run_folder import RunFolder, name_run, read_run_path
from .verdict_output import write_looks

if TYPE_CHECKING:
    from ..base.rank_facts import JobFacts
    from ..base.verdict_facts import Verdict
    from ..diagnosis.snapshot import Snapshot
    from ..diagnosis.wait_graph import WaitGraph
    from .watcher_link import SupervisedCommand

PRINT_LIMIT = 1.0  # seconds for a reader to take what we print


async def report_from_outside(
    around: SupervisedCommand,
    folder: str,
    verdict: Verdict,
    facts: JobFacts,
    seen: Snapshot,
    graph: WaitGraph,
    is_to_end: bool,
    told_by: str = "",
) -> str:
    """Write the verdict and what it rests on, and print it, or the host that prints it (`told_by`).
    `folder` is that of our socket. Return where the files are, "" if they are nowhere.
    """
    files = _make_run_folder(around, folder)
    write_looks(files, facts, graph, seen.ranks)
    files.write_json("verdict.json", to_json(verdict))
    where = await _publish(files)
    if around.answers:
        _write_text(1, json.dumps(to_json(verdict), ensure_ascii=False))
        return where
    if told_by:
        print_line(f"Nothing moves; the verdict comes from {told_by}")
        return where
    width = terminal_width(2)
    goes_on = "hold" if around.on_hang == "hold" else "report"
    state = STATES_AFTER["end" if is_to_end else goes_on].format(
        pids=", ".join(f"{one.pid} (rank {one.rank})" for one in seen.ranks)
    )
    if verdict.outcome == "silent" and not is_to_end:
        state += f" ({NOT_PROVED})"
    lines = verdict_lines(verdict, facts, seen.ranks, run_dir=where, state=state, width=width)
    stack = culprit_stack(seen.ranks, verdict, graph) if width is None else []
    _write_text(2, "\n".join([*lines, *stack]))
    return where


def has_verdict(around: SupervisedCommand) -> bool:
    """Return whether the verdict of this run was written by another process: a monitor on another
    machine, which cannot speak to us.
    """
    path = around.run_dir / "verdict.json"
    try:
        return within(PRINT_LIMIT, path.stat).st_mtime >= around.since
    except (OSError, TimeoutError, RuntimeError):
        return False


async def write_from_outside(around: SupervisedCommand, folder: str, verdict: Verdict) -> str:
    """Write a verdict that there is nothing to be said of; see report_from_outside()."""
    files = _make_run_folder(around, folder)
    files.write_json("verdict.json", to_json(verdict))
    return await _publish(files)


async def take_over_files(around: SupervisedCommand, folder: str, left: str) -> None:
    """Copy to the run folder what a monitor that was killed has `left` in its own, or one that
    could not, and remove that; what cannot be copied stays there, and is said, by one of the two.
    """
    for stage in [*Path(left).glob("*run")]:
        if not holds_nothing(str(stage)):
            run, (path, was_told) = name_run(f"{folder}/socket"), read_run_path(stage)
            files = RunFolder(stage, path or around.run_dir, run=run, adds=True, since=around.since)
            if not await files.publish():
                if not was_told:
                    print_line(f"The files of a monitor stay in {stage}: {files.trouble}")
                return
            files.close()
    shutil.rmtree(left, ignore_errors=True)


def print_verdict_as_json(folder: Path) -> None:
    """Print the verdict in a run folder, if it can be read, as JSON on stdout: the monitor of a
    script of the user's own leaves stdout to that.
    """
    with suppress(OSError, ValueError):
        verdict = json.loads((folder / "verdict.json").read_text(encoding="utf-8"))
        _write_text(1, json.dumps(verdict, ensure_ascii=False))


def print_answer(text: str) -> None:
    """Print on stderr what a monitor says of a verdict, whose own words go elsewhere."""
    _write_text(2, text.rstrip("\n"))


def print_line(text: str) -> None:
    """Print a line on stderr."""
    _write_text(2, f"hangbisect: {text}")


async def _publish(files: RunFolder) -> str:
    """Copy the files to the run folder, and return where they are, "" if they are nowhere; what has
    its copy is removed.
    """
    await files.publish(first=True)
    for sentence in (*files.take_news(), *files.losses()):
        print_line(sentence)
    files.close()
    return str(files.where or "")


def _make_run_folder(around: SupervisedCommand, folder: str) -> RunFolder:
    # Monitors of this job know us by our socket, and may have written there before.
    run = name_run(f"{folder}/socket")
    return RunFolder(None, around.run_dir, run=run, adds=True, since=around.since)


def _write_text(descriptor: int, text: str) -> None:
    write_within(descriptor, f"{text}\n".encode(errors="replace"), PRINT_LIMIT)
