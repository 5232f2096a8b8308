"""Healthy starts under `hangbisect run`: quick starts stay as they are, slow ones are no hangs.

    python benchmarks/healthy_starts.py quick [NAME ...]     with and without `run`: the same
    python benchmarks/healthy_starts.py slow [--starts 200]  no `hang` stands at the end

`quick` starts each quick start of scenarios/scripts/, and each script there that trains nothing or
fails, twice: plainly and under `run`. Exit status and output are compared (compared_starts.py).

`slow` starts those that are healthy and slow, and quick starts on a part of a core, each with other
amounts: a trickling download, a large compile, a long map, a lock that is freed in time, a slow
import. What counts is the verdict that stands at the end. --results FILE keeps each start as a
line, and those that stand there already are not tried again.

[--results FILE] [--keep DIR] [--stall 20] [--first 0]
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import jobs
import script_jobs
import script_shelf
from compared_starts import compared, lines
from own_scripts import HANGBISECT, keep
from script_shelf import Script

_STALL = 20.0  # seconds: of the amounts below
# Fifteen amounts of each kind of slowness: seconds, functions, modules, layers, rows. On two quiet
# cores a start takes between a quarter of a minute and two.
AMOUNTS: dict[str, Sequence[float]] = {
    "accelerate_trickling_download": range(8, 68, 4),
    "ddp_lock_freed_in_time": range(6, 51, 3),
    "ddp_slow_compile": range(20, 170, 10),
    "ddp_slow_import": range(100, 850, 50),
    "lightning_slow_torch_compile": range(1, 16),
    "lightning_trickling_tokenizer": range(8, 68, 4),
    "trainer_slow_map": range(400, 6400, 400),
}
THROTTLED = range(15, 75, 4)  # percent of a core, for a quick start


@dataclass(frozen=True)
class Start:
    """A start under `run`, and how it ended."""

    name: str  # of the script
    amount: float
    throttled: bool  # a quick start, on `amount` percent of a core
    number: int
    outcome: str = ""  # of the last verdict
    status: int = 0
    alarms: int = 0  # times that a hang was said, also those that were taken back
    seconds: float = 0.0
    culprit: str = ""

    @property
    def key(self) -> tuple[str, float, bool, int]:
        """What tells a start from all others: after the last amount the first comes again."""
        return self.name, self.amount, self.throttled, self.number


def quick(scripts: Sequence[Script], options: argparse.Namespace) -> int:
    """Compare each script with and without `run`; return how many differ."""
    differ = 0
    for script in scripts:
        both = compared(script, partial(_start, script, options))
        found = both.differences
        differ += bool(found)
        seconds = f"{both.plain.seconds:5.1f} {both.watched.seconds:5.1f}"
        print(
            f"{script.name:34} {'DIFFERENT' if found else 'the same'}  status {script.status}  "
            f"{len(lines(both.plain.out))} lines  {seconds} s  "
            f"{both.watched.verdict.get('outcome', 'no verdict')}",
            flush=True,
        )
        for one in found:
            print(f"    {one}")
    print(f"{len(scripts) - differ} of {len(scripts)} scripts do the same")
    return differ


def _start(script: Script, options: argparse.Namespace, watched: bool) -> jobs.Ended:
    return _ended(script, _ours(options) if watched else (), options)


def _ours(options: argparse.Namespace) -> Sequence[str]:
    return (*HANGBISECT, "run", "--run-dir", "run", "--stall", str(options.stall), "--")


def _ended(script: Script, before: Sequence[str], options: argparse.Namespace) -> jobs.Ended:
    with script_jobs.started(script, before) as running:
        ended = running.end(script.limit)
        if options.keep and before:
            keep(options.keep / script.name, ended.run_dir, ended.out + ended.err)
        return ended


def starts(scripts: Sequence[Script], stall: float) -> Iterator[Start]:
    """Yield ever different slow starts, the kinds in turn, as slow as suits `stall` seconds."""
    kinds = [(name, amounts, False) for name, amounts in AMOUNTS.items()]
    kinds += [(script.name, THROTTLED, True) for script in scripts]
    for number in itertools.count():
        for name, amounts, throttled in kinds:
            amount = amounts[number % len(amounts)]
            amount = amount if throttled else max(1, round(amount * stall / _STALL))
            yield Start(name, amount, throttled, number)


def slow(quick_starts: Sequence[Script], options: argparse.Namespace) -> int:
    """Try slow starts; return how many are a hang in the end, or did not end well."""
    known = _known(options.results)
    wrong = hangs = taken_back = 0
    every = starts(quick_starts, options.stall)
    wanted = itertools.islice(every, options.first, options.first + options.starts)
    for start in wanted:
        done = known.get(start.key) or _slow_start(start, options)
        if options.results and start.key not in known:
            with options.results.open("a") as file:
                print(json.dumps(asdict(done)), file=file)
        good = done.outcome == "ok" and done.status == 0
        hangs += done.outcome == "hang"
        wrong += not good
        taken_back += done.alarms if good else 0
        amount = f"{done.amount:g}{' %' if done.throttled else ''}"
        end = "ok" if good else f"{done.outcome.upper()} status {done.status} {done.culprit}"
        alarms = f"{done.alarms} taken back" if good and done.alarms else ""
        print(f"{done.name:34} {amount:>6}  {done.seconds:6.1f} s  {end} {alarms}", flush=True)
    print(
        f"{hangs} of {options.starts} slow starts are a hang in the end; {wrong - hangs} more did "
        f"not end well; {taken_back} hangs were said and taken back"
    )
    return wrong


def _slow_start(start: Start, options: argparse.Namespace) -> Start:
    script = script_shelf.load(script_shelf.FOLDER / f"{start.name}.py")
    script = replace(script, amount=start.amount, limit=900.0)
    if start.throttled:
        script = replace(script, world="throttled" if not script.world else "throttled_and_built")
    with script_jobs.started(script, _ours(options)) as running:
        alarms, last = 0, ""
        end = time.monotonic() + script.limit
        while running.process.poll() is None and time.monotonic() < end:
            time.sleep(0.5)
            outcome = jobs.verdict_of(running.run_dir).get("outcome", "")
            alarms += outcome == "hang" and last != "hang"
            last = outcome
        ended = running.end(1)
        verdict = ended.verdict
        done = replace(
            start,
            outcome=verdict.get("outcome", "no verdict"),
            status=ended.status,
            alarms=alarms,
            seconds=ended.seconds,
            culprit=str((verdict.get("ranks") or {}).get("culprit", "")),
        )
        if options.keep and (done.outcome != "ok" or alarms):
            place = options.keep / f"{start.name}-{start.amount:g}-{start.number}"
            keep(place, ended.run_dir, ended.out + ended.err)
        return done


def _known(results: Path | None) -> dict[tuple[str, float, bool, int], Start]:
    if not (results and results.exists()):
        return {}
    rows = [Start(**json.loads(line)) for line in results.read_text().splitlines()]
    return {row.key: row for row in rows}


def main() -> int:
    """Try them; return 1 if one is not as it should be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=("quick", "slow"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--stall", type=float, default=20.0)
    options = parser.parse_args()
    jobs.heed_signals()
    scripts = [
        one for one in script_shelf.chosen(options.names) if one.is_quick and not one.missing
    ]
    trains = [script for script in scripts if not script.status and not script.is_program]
    wrong = quick(scripts, options) if options.mode == "quick" else slow(trains, options)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
