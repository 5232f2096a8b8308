"""Isolate on the hangs of the zoo that a toggle avoids: whether its answer is an accepted one.

Each case's job really hangs, is started again and again by `hangbisect isolate`, and what that
returns is compared with what the case says (Truth.avoids). Returns 1 if an answer was wrong.

    python benchmarks/isolate_zoo.py                    all such cases, several minutes each
    python benchmarks/isolate_zoo.py I11 I19 L01        these
    python benchmarks/isolate_zoo.py --confirm 3 --stall 10
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hangbisect
from hangbisect.zoo import case_files, case_job
from hangbisect.zoo.case import CasePlace, Stage
from hangbisect.zoo.case_files import CaseFile, find_missing
from hangbisect.zoo.own_script import why_not_under

LIMIT = 1800.0  # seconds for one isolation
_PACKAGE = Path(hangbisect.__path__[0])


@dataclass(frozen=True)
class Staged:
    """A case whose world is prepared."""

    words: list[str]
    environ: dict[str, str]
    folder: Path


@contextlib.contextmanager
def staged(kept: CaseFile) -> Iterator[Staged]:
    """Prepare a case as the zoo does, and undo it."""
    mark = f"{case_job.MARK}={os.getpid()}-{time.monotonic_ns()}"
    name, _, value = mark.partition("=")
    case = kept.case
    with case_job.make_case_folder(mark) as (folder, _), contextlib.ExitStack() as world:
        place = CasePlace(folder / "job", folder / "s")
        for made in (
            place.folder,
            place.tmp,
            *map(Path, case_job._private_folders(folder).values()),
        ):
            made.mkdir(mode=0o700)
        (place.folder / f"{kept.module}.py").write_bytes(kept.file.read_bytes())
        stage = world.enter_context(case.stage(place)) if case.stage else Stage()
        environ = {
            **case_job._make_environ(folder),
            **case.environment,
            **stage.environment,
            name: value,
        }
        yield Staged(case_job.case_command(case, kept.module, stage), environ, place.folder)


def isolated(kept: CaseFile, options: argparse.Namespace) -> dict[str, Any]:
    """Return what isolate found about a case, {} if it gave no answer."""
    with staged(kept) as here:
        words = [sys.executable, str(_PACKAGE), "isolate", "--run-dir", "iso", "--yes"]
        words += ["--confirm", str(options.confirm)]
        words += ["--stall", str(options.stall)] if options.stall else []
        ran = subprocess.run(
            [*words, "--", *here.words],
            cwd=here.folder,
            env=here.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        if options.verbose:
            print(ran.stderr, ran.stdout, sep="\n", file=sys.stderr)
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((here.folder / "iso/isolation.json").read_text())
            return found
        print(ran.stderr[-2000:], file=sys.stderr)
        return {}


def answer_of(found: dict[str, Any]) -> str:
    """Return "wandb=offline", words in the order of their names; "" if nothing was isolated."""
    if found.get("outcome") != "isolated":
        return ""
    return " ".join(sorted(f"{one['toggle']}={one['value']}" for one in found["changes"]))


def main() -> int:
    """Isolate each; return 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--confirm", type=int, default=1)
    parser.add_argument("--stall", type=float)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    hangs = (kept for kept in case_files.load_all_cases() if kept.case.truth.outcome == "hang")
    every = [kept for kept in hangs if kept.case.truth.avoids]
    chosen = case_files.choose_cases(options.cases, every) if options.cases else every
    rows: list[bool] = []
    print(f"{'case':6} {'right':6} {'starts':>6} {'seconds':>8}  answer (accepted)", flush=True)
    for kept in chosen:
        why_not = why_not_under(kept.case, "pipeline") or find_missing(kept.case.needs)
        if why_not:
            print(f"{kept.case.id:6} left out: {why_not}", flush=True)
            continue
        began = time.monotonic()
        found = isolated(kept, options)
        answer = answer_of(found)
        accepted = {" ".join(sorted(one.split())) for one in kept.case.truth.avoids}
        rows.append(answer in accepted)
        told = answer or f"{found.get('outcome')}: {found.get('why')}"
        starts, took = len(found.get("trials", ())), time.monotonic() - began
        right = "yes" if rows[-1] else "NO"
        shown = " | ".join(sorted(accepted))
        print(f"{kept.case.id:6} {right:6} {starts:6} {took:8.0f}  {told} ({shown})", flush=True)
    print(f"right {sum(rows)} of {len(rows)}")
    return int(not all(rows))


if __name__ == "__main__":
    raise SystemExit(main())
