"""The run folder of a job that was looked at: the same files as of one that was watched."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..monitor.on_disk import write_environment, write_looks
from ..monitor.run_folder import RunFolder
from ..report.as_json import as_json
from ..stamp import stamp
from .judging import Judgement


def new_run_dir(pid: int) -> Path:
    """Return where the files go unless somebody says so: runs/<UTC time>-<pid>."""
    return Path(os.path.abspath(os.path.join("runs", f"{stamp()}-{pid:x}")))


async def write(found: Judgement, run_dir: Path, merged: Sequence[str] = ()) -> tuple[Path, str]:
    """Write the verdict and what it rests on; return where it is, and what could not be done: the
    folder may lie on the very file system that hangs. `merged` are further words for report.
    """
    stage = Path(tempfile.mkdtemp(prefix="hangbisect-"))
    files = RunFolder(stage, run_dir)
    write_looks(files, found.facts, found.graph, found.ranks)
    host = next((r.host for r in found.ranks if r.host), "")
    of_ranks = {r.rank: r.environment for r in found.ranks}
    write_environment(files, found.facts.versions, host, of_ranks)
    files.write_json("verdict.json", as_json(found.verdict))
    if merged:
        files.write("stacks/without-stacks.txt", "\n".join([*merged, ""]))
    if not await files.publish(first=True):
        return stage, files.trouble
    shutil.rmtree(stage, ignore_errors=True)
    return run_dir, ""
