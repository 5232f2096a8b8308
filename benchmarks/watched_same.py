"""Says whether scripts do under the watch what they do without: the same output, the same status.

Every quick start (quick_starts.py) once without and once with the variables that `hangbisect run`
sets. Compared are stdout and exit status; of stderr what is not a line of the watch, in an order of
its own, is compared with --stderr, where launchers' time stamps and pids are taken out.

    python benchmarks/watched_same.py [--only NAME] [--stderr]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from hangbisect.rank.watched.variables import variables
from quick_starts import QUICK_STARTS, QuickStart

LIMIT = 120.0  # seconds for one start
KEPT = 2000  # characters of stderr that are shown
_OURS = re.compile(r"^\[\d\d:\d\d:\d\d\.\d{3}\]\[\+")
_CHANGES = re.compile(r"\d+|0x[0-9a-f]+|\d\d:\d\d:\d\d\S*|/tmp/\S+")


def started(quick: QuickStart, folder: Path, watched: bool) -> subprocess.CompletedProcess[str]:
    """Start it in `folder` and return how it ended."""
    (folder / "train.py").write_text(quick.source, encoding="utf-8")
    environ = {n: v for n, v in os.environ.items() if not n.startswith("HANGBISECT_")}
    environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    if watched:
        environ |= variables({"run-dir": str(folder.parent / "run")}, environ)
        environ |= {"HANGBISECT_DEBUG": "1"}
    return subprocess.run(
        quick.command, cwd=folder, env=environ, capture_output=True, text=True, timeout=LIMIT
    )


def differences(quick: QuickStart, stderr: bool) -> list[str]:
    """Return in what the two starts of a script differ."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "job"
        folder.mkdir()
        plain = started(quick, folder, watched=False)
        watched = started(quick, folder, watched=True)
    found = []
    if plain.returncode != quick.status:
        found.append(f"without us it ends with {plain.returncode}:\n{plain.stderr[-KEPT:]}")
    if plain.returncode != watched.returncode:
        found.append(
            f"status {watched.returncode}, not {plain.returncode}:\n{watched.stderr[-KEPT:]}"
        )
    if plain.stdout != watched.stdout:
        found.append(f"stdout:\n{plain.stdout}---\n{watched.stdout}")
    said = any(_OURS.match(line) for line in watched.stderr.splitlines())
    if not said and "shows" not in quick.name:
        found.append(f"nothing was said:\n{watched.stderr[-KEPT:]}")
    if stderr and theirs(plain.stderr) != theirs(watched.stderr):
        found.append(f"stderr:\n{plain.stderr}---\n{watched.stderr}")
    return found


def theirs(stderr: str) -> list[str]:
    """Return what the job itself printed there, without what changes from start to start."""
    lines = [line for line in stderr.splitlines() if not _OURS.match(line)]
    ends = (n for n, line in enumerate(lines) if re.match(r"[A-Z]+ .*\branks?\b", line))
    until = next(ends, None)  # the verdict
    return sorted(_CHANGES.sub("N", line) for line in lines[:until])


def main() -> int:
    """Print a line for each; return 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--stderr", action="store_true")
    options = parser.parse_args()
    bad = 0
    for quick in QUICK_STARTS:
        if options.only not in quick.name:
            continue
        if any(importlib.util.find_spec(name) is None for name in quick.needs):
            print(f"{quick.name:30} left out: {', '.join(quick.needs)} is not here")
            continue
        found = differences(quick, options.stderr)
        bad += bool(found)
        print(f"{quick.name:30} {'the same' if not found else 'DIFFERS'}", flush=True)
        for one in found:
            print(f"    {one}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
