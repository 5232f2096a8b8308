"""Ctrl-C and SIGTERM at various moments, on healthy and on hanging jobs, a stopped rank too.

Ctrl-C is SIGINT to the launcher's process group, as a terminal sends it; SIGTERM goes to the
launcher alone. The outcome must be `interrupted`, and 2 s later the whole family must be gone.

    python benchmarks/interrupted.py [--moments 6] [--seed 2] [--only stop]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

from jobs import Ended, Running, folder, heed_signals, start, until, wide

LIMIT = 2.0  # seconds from the signal until nothing is left
HEALTHY_SPAN = 8.0  # seconds over which a healthy run is interrupted
HANGING = [
    "sleep@wandb_logger:rank1",
    "gil@wandb_logger:rank1",
    "stop@wandb_logger:rank1",
    "stop@wandb_logger",
    "child@training:rank0",
    "spin@tokenizer",
]


@dataclass(frozen=True)
class Case:
    """One job to interrupt: `inject` is "" for a healthy one."""

    signal: signal.Signals
    ranks: int
    inject: str
    after: float  # seconds after the start, or after the injection

    def interrupt(self, running: Running) -> float:
        """Send the signal at its moment; return when that was."""
        if self.inject:
            kind = self.inject.partition("@")[0]
            until(lambda: f"Injecting {kind}" in running.said(), 60, running.process)
        time.sleep(self.after)
        if self.signal == signal.SIGINT:
            os.killpg(running.process.pid, self.signal)
        else:
            running.process.send_signal(self.signal)
        return time.monotonic()


@dataclass(frozen=True)
class Gone:
    """How long after the signal the ranks, the launcher and everything were gone, in seconds."""

    ranks: float
    all: float


def wait_until_gone(running: Running, ranks: int, since: float, limit: float = 60.0) -> Gone:
    """Watch the family end."""
    names = [f"rank{rank}" for rank in range(max(ranks, 1))]
    ranks_gone = 0.0
    while time.monotonic() < since + limit:
        if not ranks_gone and not any(running.pid_of(name) for name in names):
            ranks_gone = time.monotonic() - since
        if running.process.poll() is not None and not running.marked():
            return Gone(ranks_gone, time.monotonic() - since)
        time.sleep(0.01)
    return Gone(ranks_gone or limit, limit)


def wrong(case: Case, ended: Ended, gone: Gone, spoke: bool) -> str:
    """Return what is wrong, "" if nothing is.

    A job in which no rank spoke yet has no verdict, and one that was over already may be ok.
    """
    outcome = ended.verdict.get("outcome")
    over = not case.inject and ended.out.count(": Training finished") == max(case.ranks, 1)
    if gone.all > LIMIT:
        return "too long"
    if spoke and outcome != "interrupted" and not (over and outcome == "ok"):
        return f"outcome {outcome}"
    return "" if ended.clean else f"left {ended.left_processes} {ended.left_files}"


def cases(moments: int, seed: int) -> Iterator[Case]:
    """Yield healthy jobs at random moments, then each kind of hang."""
    draw = random.Random(seed)
    both = (signal.SIGINT, signal.SIGTERM)
    for number in range(moments):
        span = HEALTHY_SPAN / moments
        after = span * (number + draw.random())
        yield from (Case(which, 2, "", after) for which in both)
        yield Case(both[number % 2], 0, "", after)
    for inject in HANGING:
        yield from (Case(which, 2, inject, draw.uniform(0.2, 2.0)) for which in both)
    for inject in ("gil@wandb_logger", "stop@wandb_logger"):
        yield from (Case(which, 0, inject, draw.uniform(0.2, 2.0)) for which in both)


def main() -> int:
    """Interrupt them; return 1 if one took too long, left something or ended in another way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=6, help="at which healthy jobs are hit")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--only", default="", help="only injections with this in their name")
    options = parser.parse_args()
    heed_signals()
    widths = (7, 5, 14, 5, 11, 6, 10, 8, 0)
    head = ("signal", "ranks", "job", "after", "outcome", "status", "ranks gone", "all gone")
    print(wide((*head, "result"), widths))
    right, worst, total = 0, 0.0, 0
    for case in cases(options.moments, options.seed):
        if options.only and options.only not in case.inject:
            continue
        with folder() as here:
            running = start(
                ["--fast-dev-run", "1", *(["--inject", case.inject] if case.inject else [])],
                here,
                ranks=case.ranks,
            )
            since = case.interrupt(running)
            spoke = ": Script started" in running.said()
            gone = wait_until_gone(running, case.ranks, since)
            ended = running.end(1)
        result = wrong(case, ended, gone, spoke)
        total, right, worst = total + 1, right + (not result), max(worst, gone.all)
        what = (case.signal.name, max(case.ranks, 1), case.inject or "healthy", case.after)
        how = (ended.verdict.get("outcome"), ended.status, gone.ranks, gone.all)
        print(wide((*what, *how, result or "right"), widths), flush=True)
    print(f"{right} of {total} interrupted as they should be; gone {worst:.1f} s after the signal "
          f"at worst, the limit is {LIMIT:.0f} s")  # fmt: skip
    return int(right < total)


if __name__ == "__main__":
    raise SystemExit(main())
