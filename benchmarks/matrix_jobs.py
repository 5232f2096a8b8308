"""How much faster a matrix is with its cells side by side: `--jobs 2` against `--jobs 1`.

Both in one run, in turn, on the same cells: healthy starts of our pipeline that stop before it
imports torch, but for one that hangs and is waited for (`--stall`), as cells do that one is after.

    python benchmarks/matrix_jobs.py [--cells 6] [--jobs 2] [--rounds 2] [--arguments "..."]

Prints the seconds of each round, their medians and the ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jobs import CHECKOUT, clean_environ

LIMIT = 1800.0  # seconds for one matrix


def scenario(cells: int, arguments: str, hangs: bool) -> str:
    """Return a scenario with so many cells, one of which hangs."""
    settings: list[dict[str, object]] = [{"name": f"start {n}"} for n in range(1, cells)]
    hanging: dict[str, object] = {
        "name": "hangs",
        "arguments": "--inject sleep@logs_directory:rank1",
    }
    settings.insert(1, hanging if hangs else {"name": f"start {cells}"})
    return json.dumps(
        {"arguments": arguments, "watch": {"stall": 5}, "limit": 300, "settings": settings}
    )


def seconds(file: Path, jobs: int) -> tuple[float, list[str]]:
    """Return how long a matrix took, and the results of its cells."""
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        run_dir = Path(folder) / "run"
        words = ["matrix", str(file), "--jobs", str(jobs), "--run-dir", str(run_dir), "--json"]
        began = time.monotonic()
        ran = subprocess.run(
            [sys.executable, *CHECKOUT, *words],
            env=clean_environ(),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        took = time.monotonic() - began
        return took, [cell["result"] for cell in json.loads(ran.stdout)["cells"]]


def main() -> None:
    """Run the rounds and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--arguments", default="--until logs_directory")
    parser.add_argument("--no-hang", action="store_true", help="healthy cells alone")
    args = parser.parse_args()
    took: dict[int, list[float]] = {1: [], args.jobs: []}
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        file = Path(folder) / "cells.yaml"
        file.write_text(scenario(args.cells, args.arguments, not args.no_hang))
        for number in range(args.rounds):
            for jobs in took if number % 2 == 0 else reversed(took):
                each, results = seconds(file, jobs)
                took[jobs].append(each)
                print(f"--jobs {jobs}: {each:6.1f} s  {' '.join(results)}", flush=True)
    one, more = (statistics.median(took[jobs]) for jobs in took)
    print(
        f"{args.cells} cells: --jobs 1 {one:.1f} s, --jobs {args.jobs} {more:.1f} s: "
        f"{one / more:.2f} times faster"
    )


if __name__ == "__main__":
    main()
