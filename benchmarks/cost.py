"""What the harness costs: the same steps as a plain script and under monitor and barriers.

Both run under torchrun with 2 ranks, in alternating order (A B, B A, A B, ...), each in a folder
of its own. The figure is the median of the ratios of wall time within each pair: 1.05 at most.

Python's last full garbage collection before the end costs 0.2 s of these 6 s, and it comes as soon
as a quarter more objects live than at the one before. So one object more may cost 3 %, and
30,000 more nothing. Both jobs of a pair therefore hold the same number of objects from their start
on, and that number differs from pair to pair over a whole round of the collector's.

    python benchmarks/cost.py [--rounds 20] [--against PYTHON]

With `--against` the other job of a pair has the harness of PYTHON's installation in place of the
plain script. Both are started as `-m bisect`, and the figure is new against old.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs import CHECKOUT, INSTALLED, Running, clean_environ, folder, start, wide
from pairs import describe_ratio, find_ratio, measure_pairs, read_cpu

LIMIT = 1.05
BALLAST = 86_000  # objects: a quarter of those that live at the last but one full collection
STEPS = ["--fast-dev-run", "1"]


def plain(ballast: int) -> float:
    """Return the seconds of the plain script, from the start of torchrun to its end."""
    script = str(Path(__file__).with_name("plain_startup.py"))
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    with folder() as here:
        job = [script, *STEPS, "--logs-path", str(here / "logs")]
        command = [torchrun, "--standalone", "--nproc_per_node=2", *job]
        return _seconds(Running(command, here, {**clean_environ(), **_holding(ballast)}))


def watched(ballast: int, python: str = sys.executable, way: Sequence[str] = CHECKOUT) -> float:
    """Return the seconds of the same steps under the harness of an interpreter."""
    launcher = [str(Path(python).with_name("torchrun")), "--standalone", "--nproc_per_node=2"]
    with folder() as here:
        environ = _holding(ballast)
        return _seconds(start(STEPS, here, launcher=launcher, way=way, environ=environ))


def _holding(ballast: int) -> dict[str, str]:
    folder = str(Path(__file__).with_name("ballast"))
    return {"PYTHONPATH": folder, "BALLAST": str(ballast)}


def _seconds(running: Running) -> float:
    ended = running.end(120)
    assert ended.status == 0, ended.out + ended.err
    return ended.seconds


def main() -> int:
    """Print the table; return 1 if the harness costs too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--against", metavar="PYTHON", help="has the other installation")
    options = parser.parse_args()
    names, first, second = ("plain s", "watched s"), plain, watched
    if options.against:
        names = ("old s", "new s")
        first = functools.partial(watched, python=options.against, way=INSTALLED)
        second = functools.partial(watched, way=INSTALLED)
    widths = (5, 8, 9, 9, 7)
    print(wide(("round", "objects", *names, "ratio"), widths))
    ballasts = [BALLAST * number // options.rounds for number in range(options.rounds)]
    first(0), second(0)  # what is cold is read from the disk once
    used: dict[str, list[float]] = {"first": [], "second": []}

    def measure(side: str, job: Callable[[int], float], number: int) -> float:
        before = read_cpu()
        took = job(ballasts[number])
        used[side].append(read_cpu() - before)
        return took

    firsts, seconds = measure_pairs(
        functools.partial(measure, "first", first),
        functools.partial(measure, "second", second),
        options.rounds,
        lambda n, a, b: print(wide((n + 1, ballasts[n], a, b, b / a), widths), flush=True),
    )
    print(
        f"{describe_ratio(firsts, seconds)}: {statistics.median(firsts):.2f} {names[0]}, "
        f"{statistics.median(seconds):.2f} {names[1]}; the limit is {LIMIT}"
    )
    print(f"CPU of launcher and ranks: {describe_ratio(used['first'], used['second'])}")
    return int(find_ratio(firsts, seconds) > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
