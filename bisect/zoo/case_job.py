"""Runs a case: its world, its job in one of three ways, its verdict, and nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.launchers import DIALECTS
from ..base.verdict_facts import Verdict
from ..monitor.child_processes import REPORTS_LATER, REPORTS_VARIABLE
from ..report.run_reader.run_files import read_verdict
from . import keeper, own_script
from .case import Case, CasePlace, Stage, Under
from .own_script import stopping

MARK = "HANGBISECT_ZOO"  # in the environment of every process of a case's job
USUAL_OPTIONS = ("--stall", "10")  # before the case's own options
STARTUP_OPTIONS = ("--fast-dev-run", "1")
TIMED_OUT = -9
SETTLES = 10.0  # seconds for which a silent verdict on a hang stands before its job is ended
Ask = Callable[[str], list[str]]  # of the keeper
_PACKAGE = Path(__file__).resolve().parents[1]
_NOT_OURS = (  # what a launcher, an account or a cluster of the user's would mix into a case
    *(name for words in DIALECTS.values() for name in words.prefixes),
    *("HANGBISECT_", "WANDB_", "HF_", "HUGGING", "TRANSFORMERS_", "TOKENIZERS_"),
    *("GLOO_", "NCCL_", "KUBERNETES_", "XDG_", "OMP_"),
)


@dataclass(frozen=True)
class CaseRun:
    """How a case's job ended."""

    status: int  # of the launcher; TIMED_OUT
    seconds: float
    verdict: Verdict | None
    output: str
    left: tuple[str, ...] = ()  # command lines of processes that it left behind


def run_case(
    case: Case,
    module: str,
    source: str,
    also: Sequence[str] = (),
    keep: Path | None = None,
    under: Under = "pipeline",
) -> CaseRun:
    """Run `case`, whose module is called `module` and reads `source`.

    `also` are words for the pipeline after the case's own. With `keep` the run folder and what was
    printed are copied there.
    """
    mark = f"{MARK}={os.getpid()}-{time.monotonic_ns()}"
    with make_case_folder(mark) as (folder, ask):
        place = CasePlace(folder / "job", folder / "s")
        for made in (place.folder, place.tmp, *map(Path, _private_folders(folder).values())):
            made.mkdir(mode=0o700)
        if under == "pipeline":
            (place.folder / f"{module}.py").write_text(source, encoding="utf-8")
        else:
            own_script.write_script(place.folder, module, source)
        with contextlib.ExitStack() as world:
            stage = world.enter_context(case.stage(place)) if case.stage else Stage()
            began = time.monotonic()
            status = _run_job(case, module, stage, also, folder, mark, under)
            seconds = time.monotonic() - began
            ask("end")
            left = ask("left 5")
        left += ask("stuck 5")
        output = (folder / "output").read_text(errors="replace")
        if keep:
            _copy_run(place.folder / "run", folder / "output", keep)
        return CaseRun(status, seconds, _find_verdict(folder), output, tuple(left))


def case_command(case: Case, module: str, stage: Stage, also: Sequence[str] = ()) -> list[str]:
    """Return the words that start the job of a case."""
    uses = own_script.name_functions(case, module)
    walked = STARTUP_OPTIONS if case.pipeline == "startup" else ("--pipeline", case.pipeline)
    options = [*walked, *USUAL_OPTIONS, "--run-dir", "run", *uses]
    options += [*case.options, *stage.options, *also]
    return [*stage.prefix, *own_script.launcher(case), str(_PACKAGE), *options]


def _run_job(
    case: Case,
    module: str,
    stage: Stage,
    also: Sequence[str],
    folder: Path,
    mark: str,
    under: Under,
) -> int:
    """Run the job until its verdict is there; return its status, TIMED_OUT if it is to be ended."""
    name, _, value = mark.partition("=")
    environ = {**_make_environ(folder), **case.environment, **stage.environment, name: value}
    words = {
        "pipeline": lambda: case_command(case, module, stage, also),
        "run": lambda: own_script.watched_command(case, module, stage),
        "attach": lambda: own_script.plain_command(case, module, stage),
    }[under]()
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(
            words,
            cwd=folder / "job",
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    run_dir = folder / "job" / "run"
    if under == "run":
        own_script.wait_for_verdict(process, run_dir, case.limit)
    elif under == "attach":
        printed = own_script.attach_when_still(process, run_dir, dict(os.environ), mark)
        with open(folder / "output", "a") as output:
            output.write(printed)
    else:
        _wait_for_pipeline(case, process, folder)
    status = process.poll()
    return TIMED_OUT if status is None else status


def _wait_for_pipeline(case: Case, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until the job ends, `limit` seconds at most; for one that is to hang only until nothing
    more is to be heard but that its step's deadline is over.
    """
    until = time.monotonic() + case.limit
    while time.monotonic() < until and not stopping.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
            return
        if case.truth.outcome == "hang" and _has_long_been_silent(folder):
            return


def _has_long_been_silent(folder: Path) -> bool:
    """Return whether a verdict that says so has stood for SETTLES: it only waits for a deadline."""
    file = folder / "job" / "run" / "verdict.json"
    with contextlib.suppress(OSError, ValueError):
        is_silent = json.loads(file.read_text())["outcome"] == "silent"
        return is_silent and time.time() > file.stat().st_mtime + SETTLES
    return False


def _make_environ(folder: Path) -> dict[str, str]:
    """Return this environment without what would mix into a case, and with homes of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_NOT_OURS) and not name.lower().endswith("_proxy")
    }
    packages = site.getuserbase()  # of `pip install --user`: HOME will be another
    always = {"PYTHONUNBUFFERED": "1", "WANDB_SILENT": "true", "PYTHONUSERBASE": packages}
    always[REPORTS_VARIABLE] = REPORTS_LATER  # the verdict is compared, and nobody reads a report
    return {**kept, **always, **_private_folders(folder)}


def _private_folders(folder: Path) -> dict[str, str]:
    """Return folders by variable; names are short, for sockets lie in some of them."""
    return {
        "HOME": str(folder / "h"),
        "XDG_RUNTIME_DIR": str(folder / "x"),
        "TMPDIR": str(folder / "t"),
    }


@contextlib.contextmanager
def make_case_folder(mark: str) -> Iterator[tuple[Path, Ask]]:
    """Make a folder, and a keeper for it: that outlives us, ends the job and removes the folder."""
    folder = Path(tempfile.mkdtemp(prefix="zoo-"))
    program = [sys.executable, "-I", "-S", keeper.__file__, mark, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        program, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as process:
        tell, hear = process.stdin, process.stdout
        assert tell is not None
        assert hear is not None

        def ask(words: str) -> list[str]:
            print(words, file=tell, flush=True)
            answer: list[str] = json.loads(hear.readline() or "[]")
            return answer

        yield folder, ask
        # Popen's end of the block closes its input, and waits.


def _find_verdict(folder: Path) -> Verdict | None:
    """Return the verdict: from the run folder, or where it went when that could not be had."""
    for file in [folder / "job" / "run" / "verdict.json", *folder.glob("[xt]/**/verdict.json")]:
        with contextlib.suppress(OSError, ValueError):
            return read_verdict(json.loads(file.read_text()))[0]
    return None


def _copy_run(run: Path, output: Path, keep: Path) -> None:
    shutil.rmtree(keep, ignore_errors=True)
    keep.mkdir(parents=True)
    shutil.copy(output, keep / "output.txt")
    for file in run.rglob("*"):
        if file.is_file() and not file.is_symlink():  # a FIFO is none: opening it would block
            target = keep / file.relative_to(run)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
