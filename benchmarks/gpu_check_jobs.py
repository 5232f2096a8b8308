"""The jobs of gpu_checks.py: how they are started, waited for and looked at, and what is kept."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import jobs

_SCRIPTS = Path(sys.executable).parent
PY_SPY = "py-spy"
_PACKAGE = Path(__file__).resolve().parent.parent / "bisect"
HANGBISECT = (sys.executable, str(_PACKAGE))
THERE = 60.0  # seconds in which a job has come to where it is to stand
_SETTLES = 6.0  # seconds after that: what is queued on the GPU has begun
_LARGEST = 8 << 20  # bytes of a file that is kept
KEPT = ("verdict.json", "evidence.json", "report.md")


def use_checkout() -> None:
    """Make this checkout the package `hangbisect` where none is installed, as `python bisect` does:
    on a machine with GPUs there may be no way to install it.
    """
    if find_spec("hangbisect") is not None:
        return
    places = [str(_PACKAGE)]
    spec = spec_from_file_location(
        "hangbisect", _PACKAGE / "__init__.py", submodule_search_locations=places
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["hangbisect"] = package = module_from_spec(spec)
    spec.loader.exec_module(package)


def is_there(name: str) -> bool:
    """Return whether there is a module, or the program py-spy where we look for it."""
    if name != PY_SPY:
        return find_spec(name) is not None
    places = (str(_SCRIPTS), sysconfig.get_path("scripts"), None)
    return any(shutil.which(name, path=place) for place in places)


@dataclass(frozen=True)
class Given:
    """What a check is given: a folder for what it records, and whether it runs on the CPU."""

    folder: Path
    on_cpu: bool

    @property
    def device(self) -> str:
        """The kind of device, as torch calls it."""
        return "cpu" if self.on_cpu else "cuda"


@contextmanager
def start_job(
    given: Given,
    program: str,
    *words: str,
    ranks: int = 0,
    under: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    name: str = "job",
) -> Iterator[tuple[jobs.Running, Path]]:
    """Start a program in a folder of its own, by torchrun if it has ranks; end it afterwards, and
    keep what it said and what is known of it.
    """
    with jobs.folder() as here:
        (here / f"{name}.py").write_text(program)
        torchrun = (str(_SCRIPTS / "torchrun"), "--standalone", f"--nproc_per_node={ranks}")
        launcher = torchrun if ranks else (sys.executable,)
        command = (*under, *launcher, f"{name}.py", given.device, *words)
        own = {"OMP_NUM_THREADS": "1", **(environ or {})}
        running = jobs.Running(command, here, {**jobs.clean_environ(), **own})
        try:
            yield running, here
        finally:
            said = running.said()
            # A driver may be slow to take down what a killed process ran there.
            with suppress(subprocess.TimeoutExpired):
                running.end(0.1)
            (given.folder / f"{name}.out.txt").write_text(said)
            for run in ("run", "seen"):
                keep_files(here / run, given.folder, KEPT, f"{name}-{run}-")


def keep_files(source: Path, folder: Path, names: Sequence[str], prefix: str = "") -> None:
    """Copy files that are there, and not too large."""
    for name in names:
        for path in source.glob(name):
            if path.is_file() and path.stat().st_size <= _LARGEST:
                shutil.copyfile(path, folder / f"{prefix}{path.name}")


def wait_for(running: jobs.Running, here: Path, ranks: int = 1, limit: float = THERE) -> None:
    """Wait until so many ranks stand where they are to stand. Raises RuntimeError if they do not
    come there.
    """

    def are_there() -> bool:
        return len(list(here.glob("there-*"))) >= ranks

    if not jobs.until(are_there, limit, running.process) and not are_there():
        raise RuntimeError(f"the job did not come so far: {running.said()[-600:]}")
    time.sleep(_SETTLES)


def attach(
    running: jobs.Running, here: Path, limit: float = 60.0, options: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the verdict of `hangbisect attach` on a job."""
    words = ("attach", "--json", "--run-dir", "seen", *options, str(running.process.pid))
    command = (*HANGBISECT, *words)
    ran = subprocess.run(command, cwd=here, capture_output=True, timeout=limit, check=False)
    if not ran.stdout.strip():
        raise RuntimeError(f"attach said nothing: {ran.stderr.decode(errors='replace')[-400:]}")
    verdict: dict[str, Any] = json.loads(ran.stdout)
    return verdict


def describe(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a verdict what a row shows."""
    return {
        "outcome": verdict.get("outcome"),
        "named": (verdict.get("ranks") or {}).get("culprit", []),
        "waits for": (verdict.get("waits_for") or {}).get("kind"),
        "cause": (verdict.get("cause") or {}).get("id"),
    }


def watch(*more: str) -> tuple[str, ...]:
    return (*HANGBISECT, "run", "--run-dir", "run", *more, "--")


def find_times(text: str) -> dict[str, float]:
    """Return what a program printed behind TIMES. Raises RuntimeError without it."""
    for line in text.splitlines():
        if "TIMES " in line:
            found: dict[str, float] = json.loads(line.partition("TIMES ")[2])
            return found
    raise RuntimeError(f"it printed no times: {text[-400:]}")
