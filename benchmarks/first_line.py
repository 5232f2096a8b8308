"""How long after its interpreter starts a rank prints its first line: 100 ms at most.

A rank's process writes the time down and at once becomes the interpreter that runs us (exec keeps
the pid), so exec, the interpreter's own start and its .pth files count. The line's own stamp says
when it was printed; it is cut to whole milliseconds. 2 ranks start under torchrun, at the same
moment, and 1 without a launcher.

    python benchmarks/first_line.py [--repeats 20] [--installed] [--against PYTHON]

With `--against` the installation of PYTHON is measured in turn with this one, both as `-m bisect`.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from pathlib import Path

from jobs import CHECKOUT, INSTALLED, folder, start, wide
from pairs import describe_ratio, find_ratio, measure_pairs

LIMIT = 100.0  # milliseconds
NOISE = 1.05  # of two installations that are alike
_STAMPING = """
import os, sys, time
with open(sys.argv[1] + os.environ.get("RANK", "0"), "w") as file:
    file.write(repr(time.time()))
os.execv(sys.argv[2], sys.argv[2:])
"""
_LINE = re.compile(r"^\[(\d\d):(\d\d):(\d\d\.\d{3})\]\[\+[\d.]+s\]\[R(\d+)/", re.MULTILINE)
_BARE = (sys.executable, "-c", "import sys, time; sys.stdout.write(time.strftime('[%H:%M:%S.')"
         " + f'{int(time.time() % 1 * 1000):03d}][+0s][R0/1]')")  # fmt: skip


def first_lines(ranks: int, way: tuple[str, ...], python: str = sys.executable) -> list[float]:
    """Return the milliseconds of each rank of one job (`ranks` 0: one, without a launcher)."""
    with folder() as here:
        stamping = [python, "-I", "-S", "-c", _STAMPING, str(here / "began-")]
        torchrun = str(Path(python).with_name("torchrun"))
        launcher = [torchrun, "--standalone", f"--nproc_per_node={ranks}", "--no-python"]
        if way == _BARE:
            running = start([], here, launcher=stamping, way=way)
        else:
            running = start(
                ["--until", "script"],
                here,
                launcher=[*(launcher if ranks else []), *stamping, python],
                way=way,
            )
        ended = running.end(60)
        found: dict[str, float] = {}
        for hours, minutes, seconds, rank in _LINE.findall(ended.out):
            found.setdefault(rank, 3600 * int(hours) + 60 * int(minutes) + float(seconds))
        assert len(found) == max(ranks, 1), ended.out + ended.err
        return [
            1000 * (stamp - _since_midnight(float((here / f"began-{rank}").read_text())))
            for rank, stamp in found.items()
        ]


def _since_midnight(wall: float) -> float:
    local = time.localtime(wall)
    return 3600 * local.tm_hour + 60 * local.tm_min + local.tm_sec + wall % 1


def _compare(other: str, count: int) -> int:
    """Print the medians of both installations, job by job in turn; return 1 if ours is later."""
    is_later = False
    for name, ranks in (("2 ranks under torchrun", 2), ("1 rank without a launcher", 0)):

        def measure(python: str, ranks: int = ranks) -> float:
            return statistics.median(first_lines(ranks, INSTALLED, python))

        old, new = measure_pairs(
            lambda _: measure(other), lambda _: measure(sys.executable), count, lambda *_: None
        )
        is_later |= find_ratio(old, new) > NOISE
        print(
            f"{name}: old {statistics.median(old):.0f} ms, new {statistics.median(new):.0f} ms, "
            f"{describe_ratio(old, new)}",
            flush=True,
        )
    return int(is_later)


def main() -> int:
    """Print the table; return 1 if a first line came late."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--installed", action="store_true", help="-m bisect, not the checkout")
    parser.add_argument("--against", metavar="PYTHON", help="has the other installation")
    options = parser.parse_args()
    if options.against:
        return _compare(options.against, options.repeats)
    way = INSTALLED if options.installed else CHECKOUT
    widths = (34, 5, 8, 8, 8)
    print(wide(("milliseconds", "lines", "best", "median", "worst"), widths))
    ours: list[float] = []
    for name, ranks, this in (
        ("2 ranks under torchrun", 2, way),
        ("1 rank without a launcher", 0, way),
        ("an interpreter that prints the time", 0, _BARE),
    ):
        times = [t for _ in range(options.repeats) for t in first_lines(ranks, this)]
        if this == way:
            ours += times
        row = (name, len(times), min(times), statistics.median(times), max(times))
        print(wide(row, widths), flush=True)
    print(
        f"first line {statistics.median(ours):.0f} ms after the interpreter started (median of "
        f"{len(ours)}), at worst {max(ours):.0f} ms; the limit is {LIMIT:.0f} ms"
    )
    return int(max(ours) > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
