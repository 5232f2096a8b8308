"""Whether the search for hangs that come and go accuses wrongly, and how many starts it takes.

Each simulated job hangs at a rate of its own, from 5 % to 95 %, unless a setting avoids it: one
toggle of 2 to 20, one of two, two together, or none. Wrong is an answer that does not avoid the
hang, or that has a toggle without which it avoids it as well. Required: at most 5 % of 500.

    python benchmarks/flaky_search.py [--seeds 500] [--toggles 20]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import mean, median, quantiles

from hangbisect.base.verdict_facts import Result, Setting
from hangbisect.search.flaky_search import estimate_flaky_starts, search_flaky
from hangbisect.search.trial_results import SearchResult
from simulated_hangs import Expression, Hang, leaf, smaller_that_passes, toggles

KINDS = ("one toggle", "one of two", "two together", "none")
RATES = ((0.05, 0.1), (0.1, 0.2), (0.2, 0.5), (0.5, 0.95))


@dataclass(frozen=True)
class Job:
    """A job that hangs at a rate, and how the search for what avoids that ended."""

    hang: Hang
    kind: str
    rate: float
    found: SearchResult

    @property
    def wrong(self) -> bool:
        """Whether the search said "found" of what does not avoid it, or of more than does."""
        if self.found.outcome != "found":
            return False
        avoids = self.hang.result(self.found.change) == "pass"
        return not avoids or smaller_that_passes(self.hang, self.found.change) is not None

    @property
    def starts(self) -> int:
        return len(self.found.tried)


def made(random: Random, most: int) -> tuple[Hang, str]:
    """Return a hang and its kind."""
    choices = toggles(random, random.randint(2, most), levels=3)
    kind = random.choices(KINDS, (5, 1, 2, 1))[0]
    leaves = tuple(leaf(random, choice) for choice in random.sample(choices, 2))
    avoided = {
        "one toggle": leaves[0],
        "one of two": Expression("or", leaves),
        "two together": Expression("and", leaves),
        "none": Expression("or"),
    }[kind]
    return Hang(choices, avoided), kind


def searched(seed: int, most: int) -> Job:
    """Return the job of that seed, searched; the diagnosis is right about it in half of them."""
    random = Random(seed)
    hang, kind = made(random, most)
    rate = random.uniform(RATES[0][0], RATES[-1][1])
    if random.random() < 0.5:  # half of them below 20 %, where it is hard
        rate = random.uniform(*random.choice(RATES[:2]))
    names = [choice.name for choice in hang.choices]
    inside = sorted(hang.avoided.names())
    likely = random.sample(inside or names if random.random() < 0.5 else names, 1)

    def test(setting: Setting, why: str) -> Result:
        hangs = hang.result(setting) == "hang" and random.random() < rate
        return "hang" if hangs else "pass"

    return Job(hang, kind, rate, search_flaky(hang.choices, test, likely=likely))


def table(title: str, rows: Sequence[tuple[str, Sequence[Job]]]) -> None:
    """Print how the jobs of each row ended, and their starts."""
    print(
        f"\n{title:<14} {'jobs':>5} {'wrong':>6} {'found':>6} {'none avoids':>12} "
        f"{'rarer':>6}   starts: median   mean   90 %    most"
    )
    for name, jobs in rows:
        ended = Counter(job.found.outcome for job in jobs)
        taken = [job.starts for job in jobs]
        print(
            f"{name:<14} {len(jobs):5} {sum(job.wrong for job in jobs):6} {ended['found']:6} "
            f"{ended['not avoided']:12} {ended['passes']:6}  {median(taken):15.0f} "
            f"{mean(taken):6.0f} {quantiles(taken, n=10)[-1]:6.0f} {max(taken):7}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--toggles", type=int, default=20)
    given = parser.parse_args()
    jobs = [searched(seed, given.toggles) for seed in range(given.seeds)]
    table(
        "rate",
        [
            (f"{low:.0%} to {high:.0%}", [job for job in jobs if low <= job.rate < high])
            for low, high in RATES
        ],
    )
    table("avoided by", [(kind, [job for job in jobs if job.kind == kind]) for kind in KINDS])
    table("all", [("", jobs)])
    found = [job for job in jobs if job.found.outcome == "found"]
    shares = [job.starts / estimate_flaky_starts(len(job.hang.choices), job.rate) for job in found]
    print(
        "\nstarts of what was found, as a share of what is told before: "
        f"median {median(shares):.2f}, 90 % below {quantiles(shares, n=10)[-1]:.2f}"
    )
    print(f"wrong: {sum(job.wrong for job in jobs)} of {len(jobs)}")


if __name__ == "__main__":
    main()
