"""A case as a script of its user's own: below `hangbisect run`, or started plainly, left to hang,
and looked at by `hangbisect attach`. Those are the ways in which a user meets a verdict.

The script is parts/train.py, which does what the pipeline `startup` does and knows nothing of us.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from . import keeper
from .case import Case, Stage, Under

stopping = threading.Event()  # set: whatever runs in other threads is to end now
SETTLES = 6.0  # seconds after a verdict of `run` in which it may still be taken back
QUIET = 6  # seconds in which nobody works, after which a job is taken to stand still
_CPU = 0.05  # of a core: more than who polls, less than who works, on a busy machine too
_READ = 64 << 10  # bytes a second: a process that imports reads more
COMES = 150.0  # seconds in which a script has come to where it hangs
LOOKS = 3  # times that `attach` is asked, for a job that still moves the first time
ATTACH_LIMIT = 120.0  # seconds for one attach
_PACKAGE = Path(__file__).resolve().parents[1]
_DATA = ("tokenizer.json", "model_config.json", "text.txt")
_FOR_THE_WATCH = ("--stall", "--timeout", "--slow-limit")  # words of a case that `run` takes too


def why_not_under(case: Case, under: Under) -> str:
    """Return why a case cannot be had in a way, "" if it can."""
    if under not in case.under:
        return f"only under {' and '.join(case.under)}"
    if under == "pipeline":
        return ""
    if case.pipeline != "startup":
        return f"walks the pipeline {case.pipeline}, of which there is no script"
    if under == "attach" and case.truth.outcome == "crash":
        return "ends by itself: there is nothing to attach to"
    return ""


def write_script(folder: Path, module: str, source: str) -> None:
    """Write train.py, what it reads, and the case's own functions into the job's folder."""
    shutil.copy(Path(__file__).parent / "parts" / "train.py", folder / "train.py")
    for name in _DATA:
        shutil.copy(_PACKAGE / "data" / name, folder / name)
    own = source.replace("hangbisect.zoo.in_rank", "train")
    (folder / f"{module}.py").write_text(own, encoding="utf-8")


def launcher(case: Case) -> list[str]:
    """Return the words that start so many Python programs."""
    words = [sys.executable]
    if case.launcher == "torchrun":
        words += ["-m", "torch.distributed.run", "--standalone"]
        words += [f"--nproc_per_node={case.ranks}"]
    return words


def plain_command(case: Case, module: str, stage: Stage) -> list[str]:
    """Return the words with which its user starts the script."""
    return [*stage.prefix, *_script_words(case, module, stage)]


def watched_command(case: Case, module: str, stage: Stage) -> list[str]:
    """Return the same below `hangbisect run`."""
    ours = [sys.executable, str(_PACKAGE), "run", "--plain", "--run-dir", "run", "--stall", "10"]
    return [
        *stage.prefix,
        *ours,
        *_split(case, stage)[0],
        "--",
        *_script_words(case, module, stage),
    ]


def _script_words(case: Case, module: str, stage: Stage) -> list[str]:
    words = [*launcher(case), "train.py", *name_functions(case, module)]
    return [*words, *_split(case, stage)[1]]


def name_functions(case: Case, module: str) -> list[str]:
    """Return the words that have functions of a case do steps."""
    uses = case.uses.items()
    return [w for step, name in uses for w in ("--use", f"{step}={module}:{name}")]


def _split(case: Case, stage: Stage) -> tuple[list[str], list[str]]:
    """Return the words of a case for the watch, and those for its script; all have one value."""
    ours: list[str] = []
    theirs: list[str] = []
    words = [*case.options, *stage.options]
    for flag, value in zip(words[::2], words[1::2], strict=True):
        (ours if flag in _FOR_THE_WATCH else theirs).extend((flag, value))
    return ours, theirs


def wait_for_verdict(process: subprocess.Popen[bytes], run_dir: Path, limit: float) -> None:
    """Wait until a hang has stood for SETTLES in verdict.json, or the job or the time is over."""
    end, since = time.monotonic() + limit, None
    while time.monotonic() < end and process.poll() is None and not stopping.is_set():
        time.sleep(0.5)
        if read_outcome(run_dir) not in ("hang", "silent"):
            since = None
        elif since is None:
            since = time.monotonic()
        elif time.monotonic() - since > SETTLES:
            return


def attach_when_still(
    process: subprocess.Popen[bytes], run_dir: Path, environ: Mapping[str, str], mark: str
) -> str:
    """Ask `hangbisect attach` once the job stands still; return what it printed, "" if the job
    ended before.
    """
    if not _wait_until_still(process, mark):
        return ""
    printed = ""
    for _ in range(LOOKS):
        if process.poll() is not None:  # it was slow to start, and has ended well meanwhile
            break
        shutil.rmtree(run_dir, ignore_errors=True)
        words = [sys.executable, str(_PACKAGE), "attach", "--run-dir", str(run_dir)]
        try:
            done = subprocess.run(
                [*words, "--pid", str(process.pid)],
                capture_output=True,
                text=True,
                timeout=ATTACH_LIMIT,
                env=environ,
            )
        except subprocess.TimeoutExpired as error:
            return f"{printed}\nno answer of attach within {error.timeout} s"
        printed += f"\n=== attach, status {done.returncode}\n{done.stdout}\n{done.stderr}"
        if read_outcome(run_dir) in ("hang", "silent"):
            break
    return printed


def _wait_until_still(process: subprocess.Popen[bytes], mark: str) -> bool:
    """Wait until no process of the job has worked or read for QUIET seconds, COMES at most; return
    whether it is still there.
    """
    end, quiet, before = time.monotonic() + COMES, 0, _count_work(mark)
    while quiet < QUIET and process.poll() is None:
        if time.monotonic() > end or stopping.is_set():
            break
        time.sleep(1)
        now = _count_work(mark)
        is_quiet = now[0] - before[0] < _CPU and now[1] - before[1] < _READ
        quiet = quiet + 1 if is_quiet else 0
        before = now
    return process.poll() is None


def _count_work(mark: str) -> tuple[float, int]:
    """Return seconds of a core that the job's processes have had, and bytes that they have read
    (proc_pid_stat(5): utime and stime; proc_pid_io(5): rchar).
    """
    cpu, read = 0.0, 0
    for pid in keeper.find_marked(mark):
        with contextlib.suppress(OSError, IndexError, ValueError):
            of = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            cpu += (int(of[11]) + int(of[12])) / os.sysconf("SC_CLK_TCK")
            read += int(Path(f"/proc/{pid}/io").read_text().split()[1])
    return cpu, read


def read_outcome(run_dir: Path) -> str:
    """Return the outcome that verdict.json has, "" if there is none."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        outcome: str = json.loads((run_dir / "verdict.json").read_text())["outcome"]
        return outcome
    return ""
