"""A hang at default settings: when it is called, and how soon everything is gone.

Rank 1 hangs at a checkpoint; no --timeout is given. Three figures of each kind of hang: seconds
from the last movement to the verdict on disk (30 at most), from the moment that a clock ran out
(5 at most), and from the verdict until no process of the job is left (2 at most).

    python benchmarks/default_settings.py [--kinds sleep,stop,gil,socket] [--checkpoint NAME]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from jobs import Running, folder, start, until, wide

KINDS = "sleep,stop,gil,socket"
CALLED, CLOCK, GONE = 30.0, 5.0, 2.0  # seconds, the limits


def events(run_dir: Path) -> list[dict[str, Any]]:
    """Return the run's events, in their order."""
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def last_movement(run_dir: Path, rank: int) -> float:
    """Return when a rank last said anything (monotonic)."""
    said = [e for e in events(run_dir) if e.get("rank") == rank and e["t"] in ("line", "enter")]
    return float(max(event["at"] for event in said))


def when_on_disk(running: Running) -> float | None:
    """Return when the verdict was there (monotonic)."""
    path = running.run_dir / "verdict.json"
    return until(lambda: path.exists() and time.monotonic(), 120, running.process) or None


def main() -> int:
    """Let them hang; return 1 if a limit is exceeded or a verdict is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default=KINDS)
    parser.add_argument("--checkpoint", default="wandb_logger")
    options = parser.parse_args()
    widths = (8, 8, 11, 17, 22, 16, 17, 0)
    head = ("kind", "outcome", "culprit", "at", "last movement-verdict", "clock-verdict")
    print(wide((*head, "verdict-all gone", "result"), widths))
    worst, right = [0.0, 0.0, 0.0], True
    for kind in options.kinds.split(","):
        with folder() as here:
            where = f"{kind}@{options.checkpoint}:rank1"
            running = start(["--fast-dev-run", "1", "--inject", where], here)
            at = when_on_disk(running)
            gone = running.wait_until_gone()
            ended = running.end(10)
            assert at is not None, ended.out + ended.err
            assert gone is not None, ended.left_processes
            verdict = ended.verdict
            clock = float(verdict["seconds"]["to_verdict"] or 0.0)
            took = [at - last_movement(ended.run_dir, 1), clock, gone - at]
        name = (verdict["checkpoint"] or {}).get("name")
        good = (verdict["outcome"], verdict["ranks"]["culprit"], name, ended.clean) == (
            "hang", [1], options.checkpoint, True
        )  # fmt: skip
        right = right and good
        worst = [max(pair) for pair in zip(worst, took, strict=True)]
        row = (kind, verdict["outcome"], str(verdict["ranks"]["culprit"]), name, *took)
        print(wide((*row, "right" if good else "wrong"), widths), flush=True)
    print(
        f"called {worst[0]:.1f} s after the last movement at worst (limit {CALLED:.0f}), "
        f"{worst[1]:.1f} s after the clock ran out (limit {CLOCK:.0f}), all gone {worst[2]:.1f} s "
        f"after the verdict (limit {GONE:.0f}); verdicts {'right' if right else 'WRONG'}"
    )
    within = all(a <= b for a, b in zip(worst, (CALLED, CLOCK, GONE), strict=True))
    return int(not (right and within))


if __name__ == "__main__":
    raise SystemExit(main())
