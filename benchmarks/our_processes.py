"""Which processes of a job are ours, and words that give a job places of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from functools import cache
from pathlib import Path

import hangbisect
import jobs

_PACKAGE = hangbisect.__path__[0]


def ours(running: jobs.Running) -> dict[str, list[int]]:
    """Return the living processes of ours in a job: monitors, probes (py-spy), helpers of
    these, watchers, stand-ins.

    The front, which is the job's first process, is none of them; nor are its children, of which one
    is about to become the command and has our command line until then.
    """
    kinds = ("monitor", "probe", "helper", "watcher", "stand-in")
    found: dict[str, list[int]] = {kind: [] for kind in kinds}
    for pid in running.marked():
        with contextlib.suppress(OSError):
            words = _words(pid)
            front = running.process.pid
            if front in (pid, _parent_of(pid)) or not any(map(_is_ours, words[:6])):
                continue
            if any(word.endswith("/py-spy") for word in words[:2]):
                found["probe"].append(pid)
            elif "monitor" in words:
                found["monitor"].append(pid)
            elif "run" not in words:
                found["helper"].append(pid)
            else:
                found["watcher" if os.getsid(pid) == pid else "stand-in"].append(pid)
    return found


def _is_ours(word: str) -> bool:
    return word.startswith(_PACKAGE) or word.rpartition("/")[2] in ("hangbisect", "py-spy")


def _words(pid: int) -> list[str]:
    data = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")
    return [word.decode(errors="replace") for word in data.split(b"\0")]


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@cache
def can_mount() -> bool:
    """Return whether a job may have a mount namespace of its own."""
    words = ("unshare", "-m", "--propagation", "private", "mount", "-t", "tmpfs", "t", "/mnt")
    return not subprocess.run(words, capture_output=True, check=False).returncode


def own_shared_memory(size: str = "64m", is_full: bool = False) -> list[str]:
    """Return words in front of a command that give it a /dev/shm of that size to itself, which has
    no room from the start if it `is_full`.
    """
    if not can_mount():
        return []
    fill = "cat /dev/zero > /dev/shm/full 2> /dev/null; " if is_full else ""
    mount = f'mount -t tmpfs -o size={size},mode=1777 t /dev/shm && {{ {fill}exec "$@"; }}'
    return ["unshare", "-m", "--propagation", "private", "sh", "-c", mount, "sh"]


def its_shared_memory(running: jobs.Running) -> Path:
    """Return the job's /dev/shm as it is seen from here, while its first process lives."""
    return Path(f"/proc/{running.process.pid}/root/dev/shm")
