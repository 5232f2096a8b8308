"""Hangs in scripts as users have them, and whether the answers of `run` and of `attach` are right.

    python benchmarks/own_scripts.py list
    python benchmarks/own_scripts.py look ddp_busy_loop       start it plainly, print its stacks
    python benchmarks/own_scripts.py run [NAME ...]           each under `hangbisect run`
    python benchmarks/own_scripts.py attach [NAME ...]        left to hang, then `hangbisect attach`

A NAME is the beginning of the name of a file in scenarios/scripts/ (all that hang; what is healthy
and slow by its whole name). Compared are the
outcome with the ranks that are to blame, the step, and the call; at the end the shares. Aim: all
three right in at least 95 %, in both. --results FILE keeps each verdict as a line, and scripts
that stand there already are not started again: they are compared anew.

[--jobs 1] [--results FILE] [--keep DIR] [--stall 8]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jobs
import script_answers
import script_jobs
import script_shelf
from script_answers import Answer
from script_shelf import Script

SETTLES = 6.0  # seconds after a verdict in which it may still be taken back
COMES = 150.0  # seconds in which a script has come to where it hangs
LOOKS = 3  # times that `attach` is asked, for a job that still moves the first time
ATTACH_LIMIT = 120.0  # seconds for one attach
HANGBISECT = [sys.executable, "-m", "hangbisect"]


@dataclass(frozen=True)
class Tried:
    """What came of one script."""

    mode: str
    name: str
    seconds: float  # run: from the start to the verdict; attach: of the command
    verdict: dict[str, Any]  # {}: there was none


def under_run(script: Script, options: argparse.Namespace) -> Tried:
    """Start a script under `hangbisect run`."""
    ours = [*HANGBISECT, "run", "--json", "--run-dir", "run", "--stall", str(options.stall), "--"]
    with script_jobs.started(script, before=ours) as running:
        verdict = _last_verdict(running, script)
        seconds = time.monotonic() - running.began
        if options.keep:
            keep(options.keep / script.name, running.run_dir, running.said())
        return Tried("run", script.name, seconds, verdict)


def _last_verdict(running: jobs.Running, script: Script) -> dict[str, Any]:
    """Return the verdict that stands SETTLES after the first one, or at the job's end. One that is
    healthy and slow may be silent: only a hang is a verdict there.
    """
    stands: tuple[str, ...] = ("hang", "silent") if script.truth.outcome == "hang" else ("hang",)
    stands += ("crash",) * script.truth.ends
    end, hang_since = time.monotonic() + script.limit, None
    while time.monotonic() < end and running.process.poll() is None:
        time.sleep(0.5)
        if _verdict_of(running).get("outcome") not in stands:
            hang_since = None
        elif hang_since is None:
            hang_since = time.monotonic()
        elif time.monotonic() - hang_since > SETTLES:
            break
    return _verdict_of(running)


def _verdict_of(running: jobs.Running) -> dict[str, Any]:
    """Return the verdict of a run; of a job that its launcher started again, that of the last
    attempt; of a command that starts several programs, each of which is a job of its own, that of
    the first one that has a verdict and has not ended well.
    """
    attempts = sorted(running.run_dir.glob("attempt-*"), reverse=True)
    folders = [*attempts, running.run_dir, *sorted(running.run_dir.glob("job-*"))]
    told = [one for one in map(jobs.verdict_of, folders) if one]
    return next((one for one in told if one.get("outcome") != "ok"), told[0] if told else {})


def by_attach(script: Script, options: argparse.Namespace) -> Tried:
    """Start a script plainly, leave it to hang, and ask `hangbisect attach`."""
    with script_jobs.started(script) as running:
        script_jobs.until_still(running, COMES)
        for _ in range(LOOKS):
            began = time.monotonic()
            verdict, said = _attach(running, options)
            seconds = time.monotonic() - began
            if verdict.get("outcome") in ("hang", "silent"):
                break
        if options.keep:
            both = f"{running.said()}\n=== attach\n{said}"
            keep(options.keep / script.name, running.run_dir, both)
        return Tried("attach", script.name, seconds, verdict)


def _attach(running: jobs.Running, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Return the verdict, and what was printed."""
    run_dir = running.run_dir
    shutil.rmtree(run_dir, ignore_errors=True)
    words = [*HANGBISECT, "attach", "--json", "--run-dir", str(run_dir)]
    words += ["--pid", str(running.process.pid)]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=ATTACH_LIMIT, env=jobs.clean_environ()
        )
    except subprocess.TimeoutExpired as error:
        return {}, f"no answer within {error.timeout} s"
    return jobs.verdict_of(run_dir), f"{done.stdout}\n{done.stderr}\nstatus {done.returncode}"


def keep(place: Path, run_dir: Path, said: str) -> None:
    """Copy a run folder, and what was printed, to `place`."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if run_dir.is_dir():
        shutil.copytree(run_dir, place, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    (place / "output.txt").write_text(said)


def look(script: Script, options: argparse.Namespace) -> None:
    """Start a script plainly, leave it to hang, print what it said and the stacks of all of it."""
    with script_jobs.started(script) as running:
        still = script_jobs.until_still(running, COMES)
        seconds = time.monotonic() - running.began
        print(f"=== {script.name}: {'still' if still else 'NOT still'} after {seconds:.0f} s")
        print(running.said()[-3000:])
        print(script_jobs.stacks(running), flush=True)


def answers(scripts: list[Script], options: argparse.Namespace) -> Iterator[Answer]:
    """Yield the answers in the order of the scripts; those of --results are compared anew."""
    ask = {"run": under_run, "attach": by_attach}[options.mode]
    known = _known(options)

    def tried(script: Script) -> Tried:
        return known.get(script.name) or ask(script, options)

    pool = ThreadPoolExecutor(options.jobs)
    try:
        for script, one in zip(scripts, pool.map(tried, scripts), strict=True):
            if options.results and one.name not in known:
                with options.results.open("a") as file:
                    print(json.dumps(asdict(one)), file=file)
            watched = options.mode == "run"
            yield script_answers.compare(script, one.verdict, one.seconds, watched)
    finally:
        pool.shutdown(cancel_futures=True)


def _known(options: argparse.Namespace) -> dict[str, Tried]:
    """Return the verdicts that --results has of this mode; of several of a script the last."""
    if not (options.results and options.results.exists()):
        return {}
    rows = (Tried(**json.loads(line)) for line in options.results.read_text().splitlines())
    return {row.name: row for row in rows if row.mode == options.mode and row.verdict}


def main() -> int:
    """Try the scripts; return 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=("list", "look", "run", "attach"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--stall", type=float, default=8.0)
    options = parser.parse_args()
    jobs.heed_signals()
    scripts = [
        one
        for one in script_shelf.chosen(options.names)
        if one.truth.outcome == "hang" or one.name in options.names
    ]
    for script in scripts:
        if script.missing:
            print(f"{script.name}: left out, {script.missing} is not installed here")
    scripts = [one for one in scripts if not one.missing or options.mode == "list"]
    if options.mode == "list":
        for script in scripts:
            print(f"{script.name:36}  {script.title}")
        print(f"{len(scripts)} scripts")
        return 0
    if options.mode == "look":
        for script in scripts:
            look(script, options)
        return 0
    print(script_answers.head(), flush=True)
    done = []
    for answer in answers(scripts, options):
        print(script_answers.row(answer), flush=True)
        done.append(answer)
    print(script_answers.shares(done))
    return int(not all(answer.good for answer in done))


if __name__ == "__main__":
    raise SystemExit(main())
