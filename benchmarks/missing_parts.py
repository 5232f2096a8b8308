"""A hang and a healthy run each, where something that the watch would like to have is missing.

Without py-spy, without leave to trace, with a run folder that is read-only, full or frozen, with
torchrun's --tee and --redirects, with an output that nobody reads. The run goes on, what is
missing is said, and the verdict still names the outcome, the rank and the checkpoint.

    python benchmarks/missing_parts.py [--only "no py-spy"] [--show]        (as root)
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import conditions
from jobs import Ended, folder, start, until, wide

CONDITIONS: dict[str, Callable[[Path], AbstractContextManager[conditions.Taken]]] = {
    "all there": conditions.nothing,
    "no py-spy": conditions.py_spy,
    "no ptrace (seccomp)": conditions.tracing,
    "ranks unreadable": conditions.reading_ranks,
    "run folder read-only": conditions.writing,
    "run folder full": conditions.room,
    "run folder fills up": conditions.room_later,
    "run folder frozen": conditions.answers,
    "run folder freezes": conditions.answers_later,
    "--tee 3": conditions.terminal_by_tee,
    "--redirects 3": conditions.terminal_by_redirects,
    "stdout never read": conditions.reader,
}
JOBS = {
    "hang": ["--inject", "sleep@wandb_logger:rank1", "--timeout", "3"],
    "gil": ["--inject", "gil@wandb_logger:rank1", "--timeout", "3"],
    "ok": [],
}
SAID = re.compile(
    r"(run folder c[^\n]*|py-spy[^\n]*|seen by[^\n]*|lines dropped[^\n]*|Going on without[^\n]*"
    r"|[^\n]*does not answer[^\n]*|faulthandler[^\n]*|no permission[^\n]*)"
)


def found_verdict(here: Path) -> tuple[dict[str, Any], str]:
    """Return the verdict, and where it was: in the run folder or elsewhere in the job's folder."""
    for path in [here / "run" / "verdict.json", *here.glob("[xt]/**/verdict.json")]:
        try:
            return json.loads(path.read_text()), str(path.parent.relative_to(here))
        except (OSError, ValueError):
            continue
    return {}, "nowhere"


def wrong(job: str, ended: Ended, verdict: dict[str, Any], where: str) -> str:
    """Return what is wrong, "" if nothing is. A folder that the verdict lies in may be left."""
    outcome = verdict.get("outcome")
    if outcome != ("ok" if job == "ok" else "hang"):
        return f"outcome {outcome}"
    if outcome == "hang" and verdict["ranks"]["culprit"] != [1]:
        return f"culprit {verdict['ranks']['culprit']}"
    if outcome == "hang" and verdict["checkpoint"]["name"] != "wandb_logger":
        return f"checkpoint {verdict['checkpoint']['name']}"
    if (ended.status == 0) != (job == "ok"):
        return f"status {ended.status}"
    files = [file for file in ended.left_files if f"/{'/'.join(where.split('/')[:2])}" not in file]
    return f"left {ended.left_processes} {files}" if ended.left_processes or files else ""


def attempt(name: str, job: str, show: bool) -> tuple[tuple[object, ...], str]:
    """Run a job under a condition; return its row, and all that it said."""
    with folder() as here, CONDITIONS[name](here) as taken:
        running = start(
            ["--fast-dev-run", "1", *JOBS[job], *taken.arguments],
            here,
            launcher=taken.launcher,
            environ=taken.environ,
        )
        taken.meanwhile(running)
        with suppress(subprocess.TimeoutExpired):
            running.process.wait(90)
        # What copies to a frozen folder sits in the kernel: nothing ends it before it thaws.
        until(lambda: not running.marked(), 5)
        taken.afterwards()
        ended = running.end(1)
        verdict, where = found_verdict(here)
        text = ended.err + ended.out
        if taken.logs:
            files = sorted(taken.logs.glob("**/std*.log"))
            text += "".join(file.read_text(errors="replace") for file in files)
    said = list(dict.fromkeys(found.strip() for found in SAID.findall(text)))
    result = wrong(job, ended, verdict, where)
    row = (name, job, verdict.get("outcome"), verdict.get("seen_by"), ended.seconds, where)
    return (*row, result or "right"), text if show else "\n".join(f"    {s}" for s in said[:6])


def main() -> int:
    """Run them all; return 1 if a verdict was wrong or something was left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=CONDITIONS)
    parser.add_argument("--jobs", default="hang,ok", help=f"of {', '.join(JOBS)}")
    parser.add_argument("--show", action="store_true", help="all that was printed")
    options = parser.parse_args()
    widths = (20, 4, 8, 12, 5, 28, 0)
    print(wide(("condition", "job", "outcome", "seen by", "s", "files in", "result"), widths))
    right = total = 0
    for name in options.only or CONDITIONS:
        for job in options.jobs.split(","):
            row, said = attempt(name, job, options.show)
            total, right = total + 1, right + (row[-1] == "right")
            print(wide(row, widths))
            print(said, flush=True)
    print(f"{right} of {total} right with something missing")
    return int(right < total)


if __name__ == "__main__":
    raise SystemExit(main())
