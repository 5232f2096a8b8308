"""What not every machine has: names for Case.needs, and how each is looked for."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path


def missing(needs: Iterable[str]) -> str:
    """Return why a case with these needs cannot run here, "" if it can. Raises KeyError."""
    return next((why for need in needs if (why := _look_for(need))), "")


@cache
def _look_for(need: str) -> str:
    return NEEDS[need]()


def _root() -> str:
    return "" if os.geteuid() == 0 else "needs root"


def _programs(*names: str) -> Callable[[], str]:
    def look() -> str:
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        gone = [name for name in names if not shutil.which(name, path=path)]
        return f"needs {', '.join(gone)}" if gone else ""

    return look


def _works(*command: str) -> Callable[[], str]:
    def look() -> str:
        no_programs = _programs(command[0])()
        if no_programs:
            return no_programs
        quiet = subprocess.DEVNULL
        tried = subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=20)
        return "" if tried.returncode == 0 else f"{' '.join(command)} is not allowed here"

    return look


def _loop_mount() -> str:
    if not os.path.exists("/dev/loop-control"):
        return "needs loop devices"
    return _root() or _programs("mkfs.ext4", "fsfreeze", "mount", "losetup")()


def _writable(*places: str) -> Callable[[], str]:
    def look() -> str:
        there = any(os.access(place, os.W_OK) for place in places)
        return _root() or ("" if there else f"needs {' or '.join(places)}")

    return look


def _library(name: str) -> Callable[[], str]:
    return lambda: "" if importlib.util.find_spec(name) else f"needs the library {name}"


def _gpu() -> str:
    if not os.path.exists("/dev/nvidiactl"):
        return "needs a GPU"
    torch = importlib.util.find_spec("torch")
    version = Path(torch.origin or "").with_name("version.py") if torch else None
    if version is None or re.search(r"^cuda\b.*= None$", version.read_text(), re.MULTILINE):
        return "needs torch built with CUDA"
    return ""


NEEDS: dict[str, Callable[[], str]] = {
    "root": _root,
    "unshare": _works("unshare", "--mount", "true"),
    "network namespace": _works(
        *("unshare", "--net", "ip", "link", "add", "one", "type", "veth", "peer", "name", "other")
    ),
    "loop mount": _loop_mount,
    "compiler": _programs("g++", "ninja"),
    "gcc": _programs("gcc"),
    "freezer": _writable(
        "/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/cgroup.subtree_control"
    ),
    "slow disk": _writable("/sys/fs/cgroup/blkio/cgroup.procs"),
    "gpu": _gpu,
    "mpi4py": _library("mpi4py"),
    "peft": _library("peft"),
}
