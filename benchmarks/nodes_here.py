"""Whether `hangbisect nodes` finds a bad node, a bad link or none on four hosts, within 90 s each.

Hosts are namespaces of this machine (hosts.py), searched by ssh from a fifth. The bad node is one
on which the command hangs, or one that no other reaches; the bad link is a cut between two. Which
ones they are is drawn for each run. Required: 30 of 30 right, each within 90 s.

The probe goes without torch, but for --torch: four imports of torch share the cores of one machine,
and take longer than all else.

    python benchmarks/nodes_here.py [--runs 30] [--first 0] [--torch]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import hosts
import hosts_services

HANGBISECT = str(Path(sys.executable).parent / "hangbisect")
KINDS = ("none", "hangs", "unreached", "link")
LIMIT, DEADLINE = 90.0, 240.0  # seconds: required, and until one is ended
_HANGS = 'if [ "$(hostname)" = {node} ]; then exec sleep 1000; fi; test -n "$MASTER_ADDR"'


@dataclass(frozen=True)
class Run:
    """One search, and whether it was right."""

    kind: str
    wanted: tuple[str, ...]
    named: tuple[tuple[str, ...], ...]
    outcome: str
    rounds: int
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether what is bad is named, and nothing else, in time."""
        named = (self.wanted,) if self.wanted else ()
        return self.named == named and self.seconds <= LIMIT


def search(number: int, torch: bool) -> Run:
    """Return the search of that number: the kinds by turns, what is bad drawn."""
    kind, random = KINDS[number % len(KINDS)], Random(number)
    with hosts.Hosts(5) as made:
        hosts_services.start_ssh(made)
        searched, login = made.all[:4], made[4]
        bad = sorted(
            random.sample(searched, 2 if kind == "link" else 1), key=lambda one: one.number
        )
        command: list[str] = [] if torch or kind == "hangs" else ["--without-torch"]
        if kind == "hangs":
            command = ["--limit", "8", "--yes", "--", "sh", "-c", _HANGS.format(node=bad[0].name)]
        elif kind == "unreached":
            made.cut(bad[0], *(one for one in searched if one is not bad[0]))
        elif kind == "link":
            made.cut(*bad)
        words = [HANGBISECT, "nodes", "--hosts", "n[1-4]", "--run-dir", "run", *command]
        begun = time.monotonic()
        done = login.run(words, limit=DEADLINE)
        seconds = time.monotonic() - begun
        file = made.folder / "run" / "nodes.json"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        if not found:
            print(done.stdout, done.stderr)
    wanted = () if kind == "none" else tuple(one.name for one in bad)
    named = tuple(tuple(one["nodes"]) for one in found.get("bad", ()))
    rounds = max((one["round"] for one in found.get("starts", ())), default=0)
    return Run(kind, wanted, named, found.get("outcome", "no answer"), rounds, seconds)


def print_runs(runs: Sequence[Run]) -> None:
    """Print how many were right, and how long each kind took."""
    for kind in KINDS:
        some = [one for one in runs if one.kind == kind]
        if some:
            took = sorted(one.seconds for one in some)
            right = sum(one.is_right for one in some)
            median = took[len(took) // 2]
            print(
                f"{kind:<10} {right} of {len(some)}, median {median:.0f} s, most {took[-1]:.0f} s"
            )
    print(f"{sum(one.is_right for one in runs)} of {len(runs)} right within {LIMIT:.0f} s")


def main() -> int:
    """Search as often as is asked; return 0 if all are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--torch", action="store_true", help="with torch in the probe")
    args = parser.parse_args()
    if why_not := hosts.missing() or hosts_services.ssh_missing():
        print(why_not)
        return 1
    runs = []
    for number in range(args.first, args.first + args.runs):
        runs.append(run := search(number, args.torch))
        said = "right" if run.is_right else f"NOT RIGHT: {run.outcome}, named {run.named}"
        bad = "+".join(run.wanted) or "-"
        took = f"{run.seconds:5.0f} s {run.rounds:>2} rounds"
        print(f"{number:>3} {run.kind:<10} {bad:<6} {took} {said}", flush=True)
    print_runs(runs)
    return 0 if all(run.is_right for run in runs) else 1


if __name__ == "__main__":
    raise SystemExit(main())
