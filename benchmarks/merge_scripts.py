"""Hangs in scripts as users have them, dumped as people do it, and what `merge` makes of them.

    python benchmarks/merge_scripts.py [NAME ...] [--tools plain,native,pystack] [--keep DIR]

Each script of scenarios/scripts/ that hangs is started plainly and left to hang; then every rank is
dumped into a file of its own, as a person would do it, and `hangbisect merge` is asked. Compared
are the ranks that are to blame and the call; a dump has no step. Aim: both right in at least 90 %
with py-spy --native, 75 % with the stacks alone (no system call stands in them).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jobs
import script_answers
import script_jobs
import script_shelf

COMES = 150.0  # seconds in which a script has come to where it hangs
LIMIT = 60.0  # seconds for one dump, and for merge
BIN = Path(sys.executable).parent
TOOLS: Mapping[str, tuple[str, ...]] = {
    "plain": (str(BIN / "py-spy"), "dump", "--nonblocking", "--subprocesses", "--pid"),
    "native": (str(BIN / "py-spy"), "dump", "--native", "--subprocesses", "--pid"),
    "pystack": (str(BIN / "pystack"), "--no-color", "remote", "--no-block"),
}
VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def main() -> int:
    options = _options()
    answers: dict[str, list[script_answers.Answer]] = {tool: [] for tool in options.tools}
    print(script_answers.head(), flush=True)
    for script in script_shelf.chosen(options.names):
        if script.truth.outcome != "hang":
            continue
        for tool, verdict in _dumped(script, options).items():
            answer = script_answers.compare(script, verdict, 0.0, watched=False)
            answers[tool].append(answer)
            print(f"{tool:8} {script_answers.row(answer)}", flush=True)
    for tool, of in answers.items():
        both = sum(a.right["rank"] and a.right["call"] for a in of)
        ranks = sum(a.right["rank"] for a in of)
        blamed = sum(bool(a.blamed) for a in of)
        print(f"{tool}: rank and call {both} of {len(of)}, rank {ranks}, waiting blamed {blamed}")
    return 0


def _dumped(script: script_shelf.Script, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Start a script, wait until it hangs, and return what merge says, by tool."""
    found = {}
    with script_jobs.started(script) as running:
        script_jobs.until_still(running, min(COMES, script.limit))
        ranks = _ranks(running)
        for tool in options.tools:
            with jobs.folder() as folder:
                for rank, pid in ranks.items():
                    (folder / f"rank{rank}.txt").write_text(_dump(tool, pid))
                found[tool] = _merged(sorted(folder.glob("rank*.txt")))
                if options.keep:
                    kept = options.keep / script.name / tool
                    kept.mkdir(parents=True, exist_ok=True)
                    for file in folder.glob("rank*.txt"):
                        (kept / file.name).write_bytes(file.read_bytes())
    return found


def _ranks(running: jobs.Running) -> dict[int, int]:
    """Return the topmost Python process of each rank."""
    found: dict[int, int] = {}
    for pid in sorted(running.marked()):
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            name = Path(f"/proc/{pid}/exe").readlink().name
        except OSError:
            continue
        values = dict(word.decode(errors="replace").partition("=")[::2] for word in environ)
        rank = next((values[v] for v in VARIABLES if values.get(v, "").isdecimal()), None)
        if rank is not None and name.startswith("python"):
            found.setdefault(int(rank), pid)
    return found


def _dump(tool: str, pid: int) -> str:
    try:
        done = subprocess.run(
            [*TOOLS[tool], str(pid)], capture_output=True, text=True, timeout=LIMIT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout


def _merged(files: list[Path]) -> dict[str, Any]:
    command = [sys.executable, "-m", "hangbisect", "merge", "--json", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if not done.stdout:
        print(done.stderr[-400:], file=sys.stderr)
        return {}
    verdict: dict[str, Any] = json.loads(done.stdout)["verdict"]
    return verdict


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--tools", type=lambda text: text.split(","), default=list(TOOLS))
    parser.add_argument("--keep", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
