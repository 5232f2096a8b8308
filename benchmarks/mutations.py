"""How much the zoo's answers fall when its programs are changed as other programs would be.

Each case is run as it is, and in copies that a program changes: what blocks stands behind more
frames and a method, in a helper thread while the main thread waits in Future.result(), is another
call for the same thing, or all times are other ones; or there are four ranks in place of two, where
one is at fault. The truth stays: the same rank, checkpoint and cause (what is waited for may also
be the thread). A table of how many are right, and which are not any more.

    python benchmarks/mutations.py [ID ...] [--only frames,thread,calls,times,ranks] [--sample 30]
                                   [--seed 0] [--jobs 2] [--keep DIR]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hangbisect.zoo import case_files
from hangbisect.zoo.case_files import CaseFile

TIMES = (0.5, 4.0)
LIMIT = 3600.0  # seconds for all cases in one way
_WRAPPED = """

class _Keeper:
    def __init__(self, call, given):
        self.call, self.given = call, given

    def answer(self):
        return self.call(self.given)


def _wrapped(call):
    def third(keeper):
        return keeper.answer()

    def second(given):
        return third(_Keeper(call, given))

    def first(given):
        return second(given)

    return first


"""
_THREADED = """

def _wrapped(call):
    def waits(given):
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(1)
        return pool.submit(call, given).result()

    return waits


"""
# One call for another that does the same.
_CALLS = (
    (r"\btime\.sleep\(", "__import__('threading').Event().wait("),
    (r"(\w+)\.recv\((\d+)\)", r"bytes(bytearray(\1.recv_into(bytearray(\2))))"),
    (r"\bos\.read\((\w+), (\d+)\)", r"open(\1, 'rb', closefd=False, buffering=0).read(\2)"),
)
_NUMBER = re.compile(r"(\btime\.sleep\(|\bsettimeout\(|\btimeout=)(\d+(?:\.\d+)?)")


def wrap(kept: CaseFile, source: str, wrapper: str) -> str:
    """Return a case's source with all its steps behind a wrapper."""
    names = sorted({name for name in kept.case.uses.values() if name.isidentifier()})
    if not names:
        return source
    return source + wrapper + "".join(f"{name} = _wrapped({name})\n" for name in names)


def replace_calls(kept: CaseFile, source: str) -> str:
    """Return a case's source with other calls for the same."""
    for before, after in _CALLS:
        source = re.sub(before, after, source)
    return source


def scale_times(source: str, factor: float) -> str:
    """Return a case's source with its times multiplied."""
    return _NUMBER.sub(lambda found: f"{found[1]}{float(found[2]) * factor:g}", source)


def add_ranks(kept: CaseFile, source: str) -> str:
    """Return a case's source with four ranks, where one of two is at fault and the other waits."""
    truth = kept.case.truth
    if kept.case.ranks != 2 or len(truth.culprit) != 1 or len(truth.waiting) != 1:
        return source
    others = tuple(rank for rank in range(4) if rank not in truth.culprit)
    source = re.sub(r"waiting=\(\d,\)", f"waiting={others}", source)
    return re.sub(
        r"^    truth=Truth\(", "    ranks=4,\n    truth=Truth(", source, flags=re.MULTILINE
    )


MUTATIONS: Mapping[str, Callable[[CaseFile, str], str]] = {
    "frames": lambda kept, source: wrap(kept, source, _WRAPPED),
    "thread": lambda kept, source: wrap(kept, source, _THREADED),
    "calls": replace_calls,
    "ranks": add_ranks,
    **{
        f"times x {factor:g}": lambda kept, source, factor=factor: scale_times(source, factor)
        for factor in TIMES
    },
}


def main() -> int:
    """Print the table; return 1 if a cause called seen was wrong, or a control a hang."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    chosen = case_files.choose_cases(options.cases, case_files.load_all_cases())
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    ways = [name for name in MUTATIONS if name.startswith(tuple(options.only.split(",")))]
    worst = 0
    print(f"{'':12} {'changed':>7}  located      cause        seen wrong  false hangs  not right")
    for way in ways:
        answers = run(way, chosen, options)
        print(format_row(way, answers), flush=True)
        worst |= int(any(is_worst(answer) for answer in answers))
    return worst


def run(way: str, chosen: list[CaseFile], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of those cases that a mutation changes."""
    with tempfile.TemporaryDirectory(prefix="mutated-") as folder:
        files = []
        for kept in chosen:
            source = kept.file.read_text(encoding="utf-8")
            made = MUTATIONS[way](kept, source)
            if made != source:
                file = Path(folder) / kept.file.name
                file.write_text(made, encoding="utf-8")
                files.append(str(file))
        if not files:
            return []
        told = Path(folder) / "answers.json"
        words = [sys.executable, "-m", "hangbisect", "zoo", "run", *files, "--json", str(told)]
        words += ["--jobs", options.jobs]
        if options.keep:
            words += ["--keep", str(options.keep / way.replace(" ", "-"))]
        subprocess.run(words, stdout=subprocess.DEVNULL, timeout=LIMIT)
        rows: list[dict[str, Any]] = json.loads(told.read_text())["cases"]
        return [row for row in rows if not row["skipped"]]


def is_located(row: Mapping[str, Any]) -> bool:
    """Return whether rank and checkpoint are right; what is waited for may be another thing now:
    the thread, or a lock in place of a sleep.
    """
    return all(one.startswith(("waits for ", "detail ")) for one in row["wrong"])


def is_worst(row: Mapping[str, Any]) -> bool:
    """Return whether a cause that is called seen is wrong, or a control was called a hang."""
    return (row["cause"] == "wrong" and row["level"] == "seen") or is_false_hang(row)


def is_false_hang(row: Mapping[str, Any]) -> bool:
    """Return whether a control was called a hang."""
    return row["asks"] == "control" and row["said"].get("outcome") == "hang"


def format_row(way: str, rows: list[dict[str, Any]]) -> str:
    """Return one line of the table."""
    hangs = [row for row in rows if row["asks"] == "hang"]
    located = [row for row in hangs if is_located(row)]
    caused = [row for row in rows if row["cause"]]
    right = [row for row in caused if row["cause"] == "right"]
    seen = sum(row["cause"] == "wrong" and row["level"] == "seen" for row in rows)
    false = sum(map(is_false_hang, rows))
    others = [row["id"] for row in rows if row in hangs and row not in located]
    others += [f"{row['id']} ({row['said'].get('cause')})" for row in caused if row not in right]
    return (
        f"{way:12} {len(rows):7}  {share(located, hangs):11}  {share(right, caused):11}  "
        f"{seen:10}  {false:11}  {', '.join(others) or '-'}"
    )


def share(right: list[Any], of: list[Any]) -> str:
    """Return "41 of 43" with its percentage."""
    return f"{len(right)} of {len(of)}" + (f" {100 * len(right) // len(of)} %" if of else "")


if __name__ == "__main__":
    sys.exit(main())
