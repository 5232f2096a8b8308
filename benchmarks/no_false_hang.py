"""Healthy runs under CPU load from another process: none may be called a hang.

The runs are plain ones, runs with a DataLoader worker, with W&B off and offline, and runs that
really are slow: `slow` computes for three timeouts, `trickle` gets a byte now and then for three.
Every one must end well: outcome ok, status 0, nothing left.

    python benchmarks/no_false_hang.py [--runs 50] [--busy 2] [--keep DIR]
"""

from __future__ import annotations

import argparse
import itertools
import shutil
from pathlib import Path

from jobs import Ended, busy, folder, start, wide

MIX = [
    "",
    "--inject slow@tokenizer:rank1 --timeout 3",
    "--inject trickle@wandb_logger:rank0 --timeout 3",
    "--num-workers 1",
    "--inject slow@wandb_logger --timeout 3",
    "--wandb off",
    "--inject trickle@tokenizer:rank1 --timeout 5",
    "--inject slow@training:rank0 --timeout 3",
    "--wandb offline --num-workers 1",
    "--inject trickle@training:rank1 --timeout 3",
    "--inject slow@data_module:rank1 --timeout 2",
    "--timeout 2",
    "--inject trickle@wandb_logger --timeout 3 --stall 4",
    "--inject slow@first_batch:rank1 --timeout 3",
    "--stall 5",
    "--inject slow@tokenizer:rank0 --inject trickle@wandb_logger:rank1 --timeout 3",
]


def wrong(ended: Ended) -> str:
    """Return what is wrong with the end of a healthy run, "" if nothing is."""
    outcome = ended.verdict.get("outcome", "no verdict")
    if outcome != "ok":
        number = (ended.verdict.get("checkpoint") or {}).get("number", "-")
        culprit = (ended.verdict.get("ranks") or {}).get("culprit", "-")
        return f"{outcome} (status {ended.status}) at {number}, culprit {culprit}"
    if ended.status:
        return f"status {ended.status}"
    return "" if ended.clean else f"left {ended.left_processes} {ended.left_files}"


def keep(ended: Ended, place: Path) -> None:
    """Keep what a run that went wrong said and wrote."""
    shutil.copytree(ended.run_dir, place, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    (place / "out.txt").write_text(ended.out)
    (place / "err.txt").write_text(ended.err)


def main() -> int:
    """Run them; return 1 if one ended in another way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--busy", type=int, default=2, help="processes that burn CPU meanwhile")
    parser.add_argument("--first", type=int, default=0, help="begin with this one of the mix")
    parser.add_argument("--keep", type=Path, help="a folder for runs that went wrong")
    options = parser.parse_args()
    widths = (3, 62, 7, 5, 5, 0)
    print(wide(("run", "arguments", "s", "looks", "late", "result"), widths))
    hangs = wrongs = 0
    mix = itertools.islice(itertools.cycle(MIX), options.first, options.first + options.runs)
    with busy(options.busy):
        for number, words in enumerate(mix, 1):
            with folder() as here:
                ended = start(["--fast-dev-run", "1", *words.split()], here).end(400)
                result = wrong(ended)
                hangs += ended.verdict.get("outcome") == "hang"
                wrongs += bool(result)
                if result and options.keep:
                    keep(ended, options.keep / f"run-{number}")
            late = len(ended.verdict.get("slow_steps", ()))
            looks = ended.err.count(": looking")
            row = (number, words or "(as it is)", ended.seconds, looks, late, result or "ok")
            print(wide(row, widths), flush=True)
    print(
        f"{hangs} of {options.runs} healthy runs under load were called a hang; "
        f"{wrongs - hangs} more did not end well"
    )
    return int(wrongs > 0)


if __name__ == "__main__":
    raise SystemExit(main())
