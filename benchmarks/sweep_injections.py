"""Every kind of --inject at three checkpoints, on rank 0, on rank 1 and on all ranks.

Each is a real job under torchrun that really hangs (or does not). The verdict must name the right
outcome, ranks and checkpoint, and nothing may be left behind. With 4 ranks: one stuck, and three.

    python benchmarks/sweep_injections.py [--kinds sleep,gil] [--checkpoints NAMES] [--timeout 3]
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from jobs import Ended, run

HANGS = ["sleep", "gil", "native", "spin", "stop", "socket", "flock", "fifo", "child"]
CRASHES = ["raise", "kill"]
GOES_ON = ["slow", "trickle"]
KINDS = [*HANGS, "exit", *CRASHES, *GOES_ON]


@dataclass(frozen=True)
class Case:
    """One job: a kind at a checkpoint on some ranks of a world."""

    kind: str
    checkpoint: str
    ranks: tuple[int, ...]
    world: int

    @property
    def arguments(self) -> list[str]:
        """Return what makes it happen."""
        everywhere = len(self.ranks) == self.world
        places = [""] if everywhere else [f":rank{rank}" for rank in self.ranks]
        return [
            word
            for place in places
            for word in ("--inject", f"{self.kind}@{self.checkpoint}{place}")
        ]

    @property
    def outcome(self) -> str:
        """Return the outcome that is right."""
        if self.kind in GOES_ON:
            return "ok"
        if self.kind in CRASHES or (self.kind == "exit" and len(self.ranks) == self.world):
            return "crash"
        return "hang"

    def wrong(self, ended: Ended) -> str:
        """Return what is wrong with the answer, "" if nothing is."""
        verdict = ended.verdict
        if not verdict:
            return f"no verdict (status {ended.status})"
        if verdict["outcome"] != self.outcome:
            return f"outcome {verdict['outcome']}"
        if not ended.clean:
            return f"left {ended.left_processes} {ended.left_files}"
        if self.outcome == "ok":
            return "" if ended.status == 0 else f"status {ended.status}"
        culprit = tuple(verdict["ranks"]["culprit"])
        # The first rank that fails takes the others with it before they can fail too.
        if self.outcome == "crash" and culprit and set(culprit) <= set(self.ranks):
            culprit = self.ranks
        if culprit != self.ranks:
            return f"culprit {culprit}"
        if verdict["checkpoint"]["name"] != self.checkpoint:
            return f"checkpoint {verdict['checkpoint']['name']}"
        if self.outcome == "hang" and not (verdict["call"] or self.kind == "exit"):
            return "no call"
        return ""


def cases(kinds: list[str], checkpoints: list[str]) -> Iterator[Case]:
    """Yield all cases."""
    of_two: tuple[tuple[int, ...], ...] = ((0,), (1,), (0, 1))
    of_four: tuple[tuple[int, ...], ...] = ((2,), (0,), (0, 1, 3), (1, 2, 3))
    for kind, checkpoint in itertools.product(kinds, checkpoints):
        for ranks in of_two:
            yield Case(kind, checkpoint, ranks, 2)
    for kind in [k for k in ("sleep", "gil", "stop") if k in kinds]:
        for ranks in of_four:
            for checkpoint in checkpoints:
                yield Case(kind, checkpoint, ranks, 4)


def main() -> int:
    """Run the cases; return 1 if any answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--checkpoints", default="tokenizer,wandb_logger,training")
    parser.add_argument("--timeout", default="3")
    parser.add_argument("--only-two-ranks", action="store_true")
    options = parser.parse_args()
    checkpoints = options.checkpoints.split(",")
    right = total = 0
    slowest = 0.0
    print(
        f"{'kind':8} {'at':16} {'ranks':9} {'of':>2} {'outcome':8} {'waits for':12} "
        f"{'call':40} {'s':>5} {'after clock':>11}  result"
    )
    for case in cases(options.kinds.split(","), checkpoints):
        if options.only_two_ranks and case.world > 2:
            continue
        ended = run(
            ["--fast-dev-run", "1", "--timeout", options.timeout, *case.arguments],
            ranks=case.world,
        )
        wrong = case.wrong(ended)
        total, right = total + 1, right + (not wrong)
        after = (ended.verdict.get("seconds") or {}).get("to_verdict")
        if case.outcome == "hang" and after is not None and case.kind != "spin":
            slowest = max(slowest, after)
        waits = (ended.verdict.get("waits_for") or {}).get("kind", "-")
        print(
            f"{case.kind:8} {case.checkpoint:16} {','.join(map(str, case.ranks)):9} {case.world:2} "
            f"{ended.verdict.get('outcome', '-'):8} {waits:12} "
            f"{(ended.verdict.get('call') or '-')[:40]:40} {ended.seconds:5.1f} "
            f"{after if after is not None else '-':>11}  {wrong or 'right'}",
            flush=True,
        )
    print(f"{right} of {total} right; slowest verdict {slowest:.1f} s after the clock ran out")
    return int(right < total)


if __name__ == "__main__":
    raise SystemExit(main())
