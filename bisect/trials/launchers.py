"""Launchers: executables that start a command on every rank (launchers/README.md).

They know nothing of us; what is special about starting our own pipelines by one stands here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..bisection.cells import ALONE
from ..errors import UsageError
from ..nearest import nearest


def folder() -> Path:
    """Return the folder of those that ship: installed beside our modules, in a checkout its own."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "launchers"
    return installed if installed.is_dir() else package.parent / "launchers"


def names() -> list[str]:
    """Return the names of those that ship."""
    return sorted(f.name for f in folder().iterdir() if f.is_file() and not f.suffix)


def find(name: str) -> Path:
    """Return the launcher of that name, or at that path if there is a "/" in it.

    Raises UsageError where there is none.
    """
    if "/" in name:
        return _at(Path(name).expanduser().absolute())
    if name in names():
        return folder() / name
    raise UsageError(
        f"there is no launcher {name!r}; there are {', '.join(names())}{nearest(name, names())}",
        "One of your own is named by a path with a / in it: ./my-launcher",
    )


def command(
    launcher: Path,
    nodes: int,
    ranks: int,
    words: Sequence[str],
    *,
    ours: bool = False,
    master_port: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command that starts `words`, what one would give to python, on `ranks` ranks of
    each of `nodes` nodes, and the variables to set for it.

    `ours`: it walks a pipeline of ours, so it has to run under our own interpreter, which comes
    first in PATH; and where Lightning starts the other ranks, it has to be told how many.
    """
    variables = {"NNODES": str(nodes), "NPROC_PER_NODE": str(ranks)}
    if master_port is not None:
        variables["MASTER_PORT"] = str(master_port)
    if ours:
        path = environ.get("PATH", os.defpath)
        variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), path])
        if launcher.name == ALONE and ranks > 1:
            words = [*words, "--devices", str(ranks)]
    return (*_started(launcher), *words), variables


def _at(path: Path) -> Path:
    if not path.is_file():
        raise UsageError(
            f"there is no launcher at {path}",
            f"Those that ship are named without a path: {', '.join(names())}",
        )
    if not os.access(path, os.X_OK) and not _interpreter(path):
        raise UsageError(f"the launcher {path} cannot be started", f"chmod +x {path}")
    return path


def _started(launcher: Path) -> tuple[str, ...]:
    """Return the words that start a launcher, whose executable bit an installer may have lost."""
    if os.access(launcher, os.X_OK):
        return (str(launcher),)
    return (*_interpreter(launcher), str(launcher))


def _interpreter(path: Path) -> list[str]:
    """Return the words of a script's first line, #!, as execve(2) reads them."""
    with path.open("rb") as file:
        first = file.readline(256)
    return os.fsdecode(first)[2:].strip().split(maxsplit=1) if first.startswith(b"#!") else []
