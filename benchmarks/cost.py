"""What the harness costs: the same steps as a plain script and under monitor and barriers.

Both run under torchrun with 2 ranks, in alternating order (A B, B A, A B, ...), each in a folder
of its own. The figure is the median of the ratios of wall time within each pair: 1.05 at most.

Python's last full garbage collection before the end costs 0.2 s of these 6 s, and it comes as soon
as a quarter more objects live than at the one before. So one object more may cost 3 %, and
30,000 more nothing. Both jobs of a pair therefore hold the same number of objects from their start
on, and that number differs from pair to pair over a whole round of the collector's.

    python benchmarks/cost.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from jobs import Running, clean_environ, folder, start, wide

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


def watched(ballast: int) -> float:
    """Return the seconds of the same steps under the harness."""
    with folder() as here:
        return _seconds(start(STEPS, here, environ=_holding(ballast)))


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
    options = parser.parse_args()
    widths = (5, 8, 9, 9, 7)
    print(wide(("round", "objects", "plain s", "watched s", "ratio"), widths))
    plains, watcheds, ratios = [], [], []
    plain(0), watched(0)  # what is cold is read from the disk once
    for number in range(options.rounds):
        ballast = BALLAST * number // options.rounds
        if number % 2:
            b = watched(ballast)
            a = plain(ballast)
        else:
            a = plain(ballast)
            b = watched(ballast)
        plains.append(a)
        watcheds.append(b)
        ratios.append(b / a)
        print(wide((number + 1, ballast, a, b, b / a), widths), flush=True)
    low, _, high = statistics.quantiles([*ratios, *ratios], n=4)  # twice: one round will do
    print(
        f"ratio {statistics.median(ratios):.3f} (median of {len(ratios)} pairs, half of them from "
        f"{low:.3f} to {high:.3f}): {statistics.median(plains):.2f} s plain, "
        f"{statistics.median(watcheds):.2f} s watched; the limit is {LIMIT}"
    )
    return int(statistics.median(ratios) > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
