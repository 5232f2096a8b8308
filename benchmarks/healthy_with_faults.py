"""Healthy programs under `hangbisect run --on-hang end`, with a fault in us: they stay as they are.

Each start takes the next program and draws a fault and its moment, the same for the same seed. It
is right if exit status and output are as in a plain start, no hang was said, and nothing of ours is
left: neither a process nor a file. Of the faults see injected_faults.py; of the programs
light_programs.py, and the quick starts and programs of scenarios/scripts/, each --heavy th start.

    python benchmarks/healthy_with_faults.py [--starts 200] [--seed 1] [--only monitor-killed]
        [--programs light_one_rank ...] [--heavy 6] [--stall 8] [--keep DIR] [--first 0]

A start takes some ten seconds: 200 half an hour on two cores, 20 three minutes. As root the job has
a /dev/shm of its own; elsewhere faults of the stage are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jobs
import script_jobs
import script_shelf
from compared_starts import lines
from injected_faults import CLOCK_SOURCE, FAULTS, PAUSE
from light_programs import light_programs
from our_processes import can_mount, its_shared_memory, own_shared_memory
from own_scripts import HANGBISECT, keep
from script_shelf import Script

_LIMIT = 60.0  # seconds that a start may take longer than a plain one
_REST = 20.0  # seconds for what watches to go, when it is stopped or gets no memory
# What Python says by itself of code of ours, or of a process of ours.
_OF_OURS = re.compile(r'File "[^"]*/(hang)?bisect/|^Exception ignored', re.M)
Libraries = Mapping[str, str]


@dataclass(frozen=True)
class Start:
    """What to start, and what shall happen to us meanwhile."""

    number: int
    script: Script
    fault: str
    moment: float  # of a plain start's time, from 0 to 1


@dataclass(frozen=True)
class Seen:
    """How a start ended."""

    ended: jobs.Ended
    how: str  # the fault was done
    at: float  # seconds after the start
    left: tuple[str, ...]

    @property
    def hang(self) -> bool:
        """A hang was said."""
        return "HANG  " in self.ended.err or self.ended.verdict.get("outcome") == "hang"


def starts(options: argparse.Namespace) -> Iterator[Start]:
    """Yield starts without end: programs in turn, faults shuffled so that each comes as often."""
    draw = random.Random(options.seed)
    light = [one for one in light_programs() if _wanted(one.name, options.programs)]
    heavy = [
        one
        for one in script_shelf.all_scripts()
        if one.is_quick and not one.world and not one.needs
    ]
    heavy = [one for one in heavy if _wanted(one.name, options.programs)]
    faults = [options.only] if options.only else [*FAULTS]
    if not can_mount():
        faults = [name for name in faults if not name.startswith("stage-full")]
    queue: list[str] = []
    number = 0
    while True:
        queue = queue or draw.sample(faults, len(faults))
        is_heavy = bool(heavy) and (
            not light or (options.heavy and not (number + 1) % options.heavy)
        )
        shelf = heavy if is_heavy else light
        script = shelf[(number // options.heavy if is_heavy and light else number) % len(shelf)]
        yield Start(number, script, queue.pop(), draw.uniform(0.02, 0.98))
        number += 1


def _wanted(name: str, words: Sequence[str]) -> bool:
    return not words or name.startswith(tuple(words))


def plain(script: Script, known: dict[str, jobs.Ended], is_full: bool = False) -> jobs.Ended:
    """Return how a script ends without us, where /dev/shm `is_full` if so; it is started once."""
    name = f"{script.name} {is_full}"
    if name not in known:
        before = own_shared_memory(is_full=is_full)
        with script_jobs.started(script, before, environment=script.environment) as one:
            known[name] = one.end(script.limit)
    return known[name]


def _also(script: Script, environment: Libraries) -> dict[str, str]:
    return {**environment, **script.environment}


def watched(
    start: Start, seconds: float, environment: Libraries, options: argparse.Namespace
) -> Seen:
    """Start it below the watch, and do the fault at its moment."""
    stall = ("--stall", str(options.stall), "--on-hang", "end", "--run-dir", "run", "--")
    before = (*own_shared_memory(), *HANGBISECT, "run", *stall)
    how = ["the job was over"]
    with script_jobs.started(
        start.script, before, environment=_also(start.script, environment)
    ) as running:
        with _its_shared_memory_kept(running) as shared:
            at = start.moment * seconds
            fault = threading.Thread(target=_inject, args=(start.fault, at, running, how))
            fault.start()
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.process.wait(seconds + _LIMIT + PAUSE)
            fault.join()
            ended = running.end(1, _REST)
            left = [*ended.left_processes, *ended.left_files, *_left_in(shared)]
        if options.keep:
            keep(options.keep / f"{start.number}", ended.run_dir, ended.out + ended.err)
        return Seen(ended, how[-1], at, tuple(left))


def _inject(fault: str, at: float, running: jobs.Running, how: list[str]) -> None:
    jobs.until(lambda: False, at, running.process)
    if running.process.poll() is None:
        how.append(FAULTS[fault](running))


@contextlib.contextmanager
def _its_shared_memory_kept(running: jobs.Running) -> Iterator[int | None]:
    """Hold the job's /dev/shm open, so that it can be looked at once all have gone."""
    shared = None
    if can_mount():
        jobs.until(lambda: _is_its_own(running), 10.0, running.process)
        with contextlib.suppress(OSError):
            shared = os.open(its_shared_memory(running), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield shared
    finally:
        if shared is not None:
            os.close(shared)


def _is_its_own(running: jobs.Running) -> bool:
    with contextlib.suppress(OSError):
        return its_shared_memory(running).stat().st_dev != os.stat("/dev/shm").st_dev
    return False


def _left_in(shared: int | None) -> list[str]:
    names = os.listdir(shared) if shared is not None else []
    return [f"/dev/shm/{name}" for name in names if "hangbisect" in name]


def wrong(start: Start, seen: Seen, known: dict[str, jobs.Ended]) -> list[str]:
    """Return what is not as without us."""
    without = plain(start.script, known)
    found = _differences(seen.ended, without)
    if found and not _differences(seen.ended, plain(start.script, {})):
        found = []  # it ends in more than one way by itself (its port was taken, for one)
    # A semaphore of the program's own may find no room either, and then that is none of our doing.
    if found and start.fault == "stage-full":
        found = found if not _differences(plain(start.script, known, True), without) else []
    if seen.hang:
        found.append("a hang was said")
    usual = {_kind(word) for word in without.left_files}
    # Where the run folder cannot be used, another one is kept, and said.
    kept = re.findall(r"^    report: (.+)$", seen.ended.err, re.M)
    left = [word for word in seen.left if not any(place.startswith(word) for place in kept)]
    if left := [word[:90] for word in left if _kind(word) not in usual]:
        found.append(f"left {left}")
    if "internal error" in seen.ended.err:
        found.append("an internal error was said")
    if _OF_OURS.search(seen.ended.err) and not _OF_OURS.search(without.err):
        found.append("a traceback of ours was said")
    return found


def _differences(ended: jobs.Ended, without: jobs.Ended) -> list[str]:
    found = []
    if ended.status % 256 != without.status % 256 and _status(ended) != _status(without):
        found.append(f"status {_status(ended)}, not {_status(without)}")
    # Ranks that print at the same moment mix their lines: then the characters are the same.
    is_same = sorted(lines(ended.out)) == sorted(lines(without.out))
    if not is_same and sorted("".join(lines(ended.out))) != sorted("".join(lines(without.out))):
        ours, theirs = sorted(lines(ended.out)), sorted(lines(without.out))
        more = [line for line in ours if line not in theirs][:2]
        less = [line for line in theirs if line not in ours][:2]
        found.append(f"output: {more} for {less} ({len(ours)} lines, not {len(theirs)})")
    return found


def _kind(path: str) -> str:
    """Return the name of a file, with what tempfile.mkdtemp() draws for it left out."""
    return re.sub(r"^tmp\w{8}$", "tmp", path.rpartition("/")[2])


def _status(ended: jobs.Ended) -> int:
    return ended.status if ended.status >= 0 else 128 - ended.status


@contextlib.contextmanager
def clock() -> Iterator[Libraries]:
    """Make a library by which the wall clock of a job can jump; yield variables that use it."""
    with tempfile.TemporaryDirectory() as base:
        source, library = Path(base) / "clock.c", Path(base) / "clock.so"
        source.write_text(CLOCK_SOURCE)
        command = ("gcc", "-shared", "-fPIC", "-O2", str(source), "-o", str(library), "-ldl")
        if shutil.which("gcc") and not subprocess.run(command, check=False).returncode:
            yield {"LD_PRELOAD": str(library)}
        else:
            yield {}


def main() -> int:
    """Try them; return 1 if one is not as it should be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="begin with this one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[*FAULTS], help="one fault")
    parser.add_argument("--programs", nargs="*", default=[], help="beginnings of names")
    parser.add_argument("--heavy", type=int, default=6, help="each so many th start; 0 for none")
    parser.add_argument("--stall", type=float, default=8.0)
    parser.add_argument("--keep", type=Path, help="a folder for what each start wrote")
    options = parser.parse_args()
    jobs.heed_signals()
    known: dict[str, jobs.Ended] = {}
    right = hangs = 0
    widths = (3, 34, 20, 6, 14, 6, 0)
    print(jobs.wide(("no", "program", "fault", "at s", "how", "s", "result"), widths))
    for start in starts(options):
        if start.number >= options.first + options.starts:
            break
        if start.number < options.first:
            continue
        with clock() as library:
            library = library if start.fault.startswith("clock") else {}
            without = plain(start.script, known)
            seen = watched(start, without.seconds, library, options)
        found = wrong(start, seen, known)
        right, hangs = right + (not found), hangs + seen.hang
        row = (start.number, start.script.name, start.fault, seen.at, seen.how, seen.ended.seconds)
        print(jobs.wide((*row, "right" if not found else "; ".join(found)), widths), flush=True)
    print(f"{right} of {options.starts} as without us; {hangs} hangs said that are none")
    return int(right < options.starts)


if __name__ == "__main__":
    raise SystemExit(main())
