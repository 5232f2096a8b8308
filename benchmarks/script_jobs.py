"""Start a script of the shelf: as its user does, or with words of ours in front."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import Template

import jobs
from script_shelf import PACKAGES, Script
from script_worlds import PATH, WORLDS

QUIET = 6  # seconds in which nobody works, after which a job is taken to stand still
_ALWAYS = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", "TQDM_DISABLE": "1"}
_NOT_OURS = ("HF_", "HUGGING", "TRANSFORMERS_", "TOKENIZERS_", "GLOO_", "NCCL_", "OMP_", "NODE_")


@contextlib.contextmanager
def started(
    script: Script,
    before: Sequence[str] = (),
    also: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> Iterator[jobs.Running]:
    """Start `script` in a folder of its own, in its world; end it and remove all in the end.

    `before` are words in front of its command ("hangbisect run --"), `also` follow it.
    """
    with jobs.folder() as folder:
        here, place = folder / "job", folder / "w"
        for made in (here, place, folder / "h"):
            made.mkdir()
        (here / "train.py").write_text(script.source, encoding="utf-8")
        for name, text in script.files.items():
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            (here / name).write_text(text, encoding="utf-8")
        libraries = folder / "v" / "site-packages"
        for name in script.packages:
            shutil.copytree(PACKAGES / name, libraries / name)
        with WORLDS[script.world or "nothing"](place, script.amount) as world:
            given = {"PORT": str(free_port()), "AMOUNT": f"{script.amount:g}"}
            given.update({**world.environment, **script.environment})
            words = [Template(word).safe_substitute(given) for word in script.command]
            environ = {**_environ(folder), **given, **(environment or {})}
            if script.packages:
                environ["PYTHONPATH"] = str(libraries)
            running = jobs.Running([*world.prefix, *before, *words, *also], here, environ)
            try:
                yield running
            finally:
                _end(running)


def until_still(running: jobs.Running, limit: float) -> bool:
    """Wait until the job stands still; return False if it ended, or moves after `limit` seconds.

    One that spins never stands still: who expects that looks all the same.
    """
    end, quiet, before = time.monotonic() + limit, 0, set(_runnable(running))
    while time.monotonic() < end and running.process.poll() is None:
        time.sleep(1)
        now = set(_runnable(running))
        # Who waits for a core is runnable all the time; who polls only now and then.
        quiet = 0 if now & before else quiet + 1
        before = now
        if quiet >= QUIET:
            return True
    return False


def free_port() -> int:
    """Return a port that nobody has now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def stacks(running: jobs.Running) -> str:
    """Return what py-spy sees of every process of the job, one after another."""
    said = []
    for pid in running.marked():
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        dump = [
            str(Path(sys.executable).with_name("py-spy")),
            "dump",
            "--nonblocking",
            "--pid",
            str(pid),
        ]
        with contextlib.suppress(subprocess.TimeoutExpired):
            seen = subprocess.run(dump, capture_output=True, text=True, timeout=10)
            said.append(f"--- {pid} {command[:120]}\n{seen.stdout or seen.stderr}")
    return "\n".join(said)


def _environ(folder: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in jobs.clean_environ().items()
        if not name.startswith(_NOT_OURS) and not name.lower().endswith("_proxy")
    }
    return {**kept, **_ALWAYS, "HOME": str(folder / "h"), "PATH": PATH}


def _runnable(running: jobs.Running) -> Iterator[int]:
    for pid in running.marked():
        with contextlib.suppress(OSError, IndexError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "RD":
                yield pid


def _end(running: jobs.Running) -> None:
    for _ in range(50):
        pids = running.marked()
        if not pids and running.process.poll() is not None:
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    with contextlib.suppress(ValueError):  # its files are closed: it was ended before
        running.end(1)
