"""How often `compare` calls a step of two equal starts different: that would be noise.

The startup pipeline is started again and again as it is, with 2 ranks under torchrun, and each two
starts are compared. The figure is the share of steps that are told to differ in time: with nothing
else on the machine at most 5 %.

    python benchmarks/compare_noise.py [--starts 5]
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import runpy
from pathlib import Path

from jobs import folder, start

LIMIT = 0.05
STEPS = ["--fast-dev-run", "1"]


def main() -> int:
    """Print each step that is told to differ; return 1 if there are too many."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=5)
    options = parser.parse_args()
    runpy.run_path(str(Path(__file__).parents[1] / "bisect" / "__main__.py"), run_name="checkout")
    read = importlib.import_module("hangbisect.report.run_reader.run").read_run
    compared = importlib.import_module("hangbisect.report.comparison").compare_runs
    runs = []
    for _ in range(options.starts):
        with folder() as here:
            ended = start(STEPS, here).end(300)
            assert ended.status == 0, ended.out + ended.err
            runs.append(read(ended.run_dir))
    told = steps = 0
    for (i, a), (j, b) in itertools.combinations(enumerate(runs, 1), 2):
        found = compared(a, b)
        differing = [one for one in found.times if one.depth == 0]
        told += len(differing)
        steps += len(differing) + found.same.get("steps", 0)
        for one in differing:
            print(f"{i} and {j}: {one.title}  {one.a.seconds:.2f} s  {one.b.seconds:.2f} s")
        for other in found.settings:
            print(f"{i} and {j}: {other.topic} {other.name}  {other.a}  {other.b}")
    print(f"{told} of {steps} steps of {options.starts} equal starts are told to differ")
    return int(told > LIMIT * steps)


if __name__ == "__main__":
    raise SystemExit(main())
