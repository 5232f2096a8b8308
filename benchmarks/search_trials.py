"""How many trials the search takes on simulated hangs, and whether its answers are minimal.

A hang is a boolean expression over up to 40 toggles, another one for each seed; a diagnosis guesses
one toggle, right or wrong, or none. Not minimal is an answer of which a part passes as well. Missed
is a hang for which some set of toggles passes, but none was found. Trials do not count walking back
and confirming. Allowed are 2·k·log2(n) + 2·k + 4 for k of n toggles where no safer value brings a
hang about, and n² + 3n where some settings crash.

    python benchmarks/search_trials.py [--seeds 3000] [--toggles 40]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log2
from random import Random
from statistics import median
from typing import Literal

from hangbisect.search.search import search
from hangbisect.search.trial_results import SearchResult
from simulated_hangs import (
    Hang,
    any_hang,
    can_pass,
    crashing_hang,
    monotone_hang,
    smaller_that_passes,
)

Guess = Literal["right", "none", "wrong"]


@dataclass(frozen=True)
class Run:
    """One search on one simulated hang."""

    hang: Hang
    found: SearchResult

    @property
    def ok(self) -> bool:
        return self.found.outcome == "found"

    @property
    def trials(self) -> int:
        return len(self.found.tried)

    @property
    def minimal(self) -> bool:
        return smaller_that_passes(self.hang, self.found.change) is None

    @property
    def accuses_for_a_crash(self) -> bool:
        """Whether a toggle is accused that has no part in the hang."""
        return not set(self.found.change) - set(self.found.companions) <= self.hang.avoided.names()


@dataclass(frozen=True)
class Kind:
    """A kind of simulated hang, and how many trials are allowed for n toggles, k in the answer."""

    name: str
    make: Callable[[Random, int], Hang]
    allowed: Callable[[int, int], float]


def monotone_limit(toggles: int, size: int) -> float:
    return 2 * size * log2(toggles) + 2 * size + 4


KINDS = (
    Kind("no safer value hangs", monotone_hang, monotone_limit),
    Kind("some settings crash", crashing_hang, lambda toggles, size: toggles**2 + 3 * toggles),
    Kind("safer values may hang", any_hang, lambda toggles, size: inf),
)


def searched(kind: Kind, seed: int, most: int, guess: Guess) -> Run:
    random = Random(seed)
    hang = kind.make(random, most)
    names = [choice.name for choice in hang.choices]
    part = [name for name in names if name in hang.avoided.names()]
    others = [name for name in names if name not in part] or names
    likely = {"right": part[:1], "none": [], "wrong": [random.choice(others)]}[guess]
    return Run(hang, search(hang.choices, lambda s, _: hang.result(s), likely=likely, confirm=0))


def line(kind: Kind, guess: Guess, runs: Sequence[Run]) -> str:
    found = [run for run in runs if run.ok]
    shares = [
        run.trials / kind.allowed(len(run.hang.choices), len(run.found.change)) for run in found
    ]
    trials = [run.trials for run in found]
    return (
        f"{kind.name:<22} {guess:<6} {len(runs):5} {len(found):6} "
        f"{sum(not run.ok and can_pass(run.hang) for run in runs):6} "
        f"{sum(not run.minimal for run in found):11} "
        f"{sum(run.accuses_for_a_crash for run in found):7} "
        f"{sum(share > 1 for share in shares):10} {median(trials):6.0f} {max(trials):5}"
    )


def by_size(runs: Sequence[Run], most: int) -> None:
    """Print the trials by the size of the answer."""
    print(f"\n{KINDS[0].name}, no guess, by toggles in the answer")
    print(f"  k  hangs  median   most  allowed for {most} toggles")
    for size in sorted({len(run.found.change) for run in runs}):
        trials = [run.trials for run in runs if len(run.found.change) == size]
        allowed = monotone_limit(most, size)
        print(f"  {size} {len(trials):6} {median(trials):7.0f} {max(trials):6} {allowed:8.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3000)
    parser.add_argument("--toggles", type=int, default=40)
    given = parser.parse_args()
    print(f"{'':22} {'guess':<6} hangs  found missed {'not':>11} accused {'over':>10} trials:")
    print(
        f"{'':22} {'':<6} {'':5} {'':6} {'':6} {'minimal':>11} {'':7} {'allowed':>10} median  most"
    )
    guesses: tuple[Guess, ...] = ("right", "wrong", "none")
    plain: list[Run] = []
    for kind in KINDS:
        for guess in guesses:
            runs = [searched(kind, seed, given.toggles, guess) for seed in range(given.seeds)]
            print(line(kind, guess, runs), flush=True)
            plain = plain or (runs if guess == "none" else [])
    by_size(plain, given.toggles)


if __name__ == "__main__":
    main()
