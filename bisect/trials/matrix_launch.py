"""How a cell of a matrix is started on this machine.

Launchers are executables that start a command on every rank (launchers/README.md). They know
nothing of us; what is special about starting our own pipelines by one stands here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..base.command_words import FIRST_PIPELINE, PIPELINE, PORTS
from ..base.errors import UsageError, nearest
from ..search.cells import ALONE, Cell
from ..toggles.command_toggles import apply_setting
from ..toggles.toggle import Toggle
from .launch import Launch
from .resources import DEVICES

_PACKAGE = Path(__file__).resolve().parents[1]
_PYTHON = re.compile(r"python[0-9.]*")
_LONGEST = 40  # characters of a cell's name in its folder's


@dataclass(frozen=True)
class MatrixContext:
    """What all cells of a matrix have in common."""

    table: tuple[Toggle, ...]  # all toggles that there are
    watch: Mapping[str, str]  # options of the watch
    folder: Path  # of the matrix; each cell has one in it
    started_in: Path  # where cells are started
    environment: Mapping[str, str] = field(default_factory=dict)  # that the file gives every cell


def make_launch(
    cell: Cell, around: MatrixContext, apart: Mapping[str, str], port: int | None = None
) -> Launch:
    """Return the launch of a cell; `apart`: what keeps it from others that run at the same time,
    where the file says nothing of it. Of the GPUs that it gives to every cell one has its share.

    Raises UsageError for a launcher that does not exist, or a toggle that cannot be applied.
    """
    environment = {**cell.environment, **_variables_apart(cell, around, apart)}
    named = any(name in cell.environment for name in PORTS)
    command, variables = _cell_command(cell, {**os.environ, **environment}, None if named else port)
    environment.update(variables)
    ours = cell.pipeline is not None
    change = apply_setting(command, cell.setting, around.table, {**os.environ, **environment}, ours)
    return Launch(
        command=change.command,
        run_dir=cell_run_dir(cell, around),
        environment={**environment, **change.environment},
        watch={"on-hang": "end", **around.watch},
        limit=cell.limit,
        folder=around.started_in,
    )


def _variables_apart(cell: Cell, around: MatrixContext, apart: Mapping[str, str]) -> dict[str, str]:
    """Return those of the variables `apart` of which the file says nothing, or that share out what
    it says.
    """
    named = set(cell.environment)
    if cell.environment.get(DEVICES) == around.environment.get(DEVICES):
        named.discard(DEVICES)
    if named.intersection(PORTS):
        named.update(PORTS)
    return {name: value for name, value in apart.items() if name not in named}


def cell_run_dir(cell: Cell, around: MatrixContext) -> Path:
    """Return the folder of a cell: its number and its name."""
    word = re.sub(r"[^A-Za-z0-9.=_]+", "-", cell.name).strip("-.")[:_LONGEST]
    return around.folder / (f"{cell.number:02}-{word}" if word else f"{cell.number:02}")


def cell_mark(cell: Cell, around: MatrixContext) -> str:
    """Return what tells a cell from all others, today and after an interruption."""
    facts = {**asdict(cell), "watch": dict(around.watch), "table": _own_toggles(around)}
    del facts["number"]
    text = json.dumps(facts, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _own_toggles(around: MatrixContext) -> list[dict[str, object]]:
    return [asdict(toggle) for toggle in around.table if toggle.own]


def _cell_command(
    cell: Cell, environ: Mapping[str, str], port: int | None
) -> tuple[tuple[str, ...], dict[str, str]]:
    words = cell.words
    if cell.pipeline is not None:
        words = (*_own_module(), *_pipeline_words(cell.pipeline), *words)
    if cell.launcher is None:
        return words, {}
    if cell.pipeline is None and _PYTHON.fullmatch(Path(words[0]).name):
        words = words[1:]  # a launcher is told what one would give to python
    return launcher_command(
        find_launcher(cell.launcher),
        cell.nodes,
        cell.ranks,
        words,
        ours=cell.pipeline is not None,
        master_port=port,
        environ=environ,
    )


def _own_module() -> tuple[str, ...]:
    """Return what python runs to walk a pipeline; a checkout is not found as a module by ranks that
    start elsewhere.
    """
    return ("-m", "bisect") if _PACKAGE.name == "hangbisect" else (str(_PACKAGE),)


def _pipeline_words(pipeline: str) -> tuple[str, ...]:
    return () if pipeline == FIRST_PIPELINE else (PIPELINE, pipeline)


def format_launch(launch: Launch, makes: Path | None = None) -> str:
    """Return a line for a shell that does what the launch does; `makes`: a folder that it needs."""
    shown = dict(launch.watch)
    if launch.limit is not None:
        shown["limit"] = f"{launch.limit:g}"
    shown["run-dir"] = str(launch.run_dir.resolve())
    options: list[str] = []
    for name, value in shown.items():
        for one in value.split(",") if name == "timeout" else [value]:
            options += [f"--{name}", one]
    words = [*own_program(), "run", *options, "--", *launch.command]
    variables = [_format_assignment(name, value) for name, value in launch.environment.items()]
    steps = [f"cd {shlex.quote(str(launch.folder or Path.cwd()))}"]
    steps += [f"mkdir -p {shlex.quote(str(makes))}"] if makes else []
    return " && ".join([*steps, " ".join([*variables, shlex.join(words)])])


def _format_assignment(name: str, value: str) -> str:
    rest = os.environ.get("PATH", "")
    if name == "PATH" and rest and value.endswith(f":{rest}"):
        return f'PATH={shlex.quote(value.removesuffix(rest))}"$PATH"'
    return f"{name}={shlex.quote(value)}"


def own_program() -> tuple[str, ...]:
    """Return the words that start us in a shell."""
    script = Path(sys.executable).parent / "hangbisect"
    if _PACKAGE.name == "hangbisect" and script.is_file():
        return (str(script),)
    return (sys.executable, str(_PACKAGE))


def launcher_folder() -> Path:
    """Return the folder of those that ship: installed beside our modules, in a checkout its own."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "launchers"
    return installed if installed.is_dir() else package.parent / "launchers"


def launcher_names() -> list[str]:
    """Return the names of those that ship."""
    return sorted(f.name for f in launcher_folder().iterdir() if f.is_file() and not f.suffix)


def find_launcher(name: str) -> Path:
    """Return the launcher of that name, or at that path if there is a "/" in it.

    Raises UsageError where there is none.
    """
    if "/" in name:
        return _launcher_at(Path(name).expanduser().absolute())
    if name in launcher_names():
        return launcher_folder() / name
    known = launcher_names()
    raise UsageError(
        f"there is no launcher {name!r}; there are {', '.join(known)}{nearest(name, known)}",
        "One of your own is named by a path with a / in it: ./my-launcher",
    )


def launcher_command(
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
    return (*_launcher_words(launcher), *words), variables


def _launcher_at(path: Path) -> Path:
    if not path.is_file():
        raise UsageError(
            f"there is no launcher at {path}",
            f"Those that ship are named without a path: {', '.join(launcher_names())}",
        )
    if not os.access(path, os.X_OK) and not _script_interpreter(path):
        raise UsageError(f"the launcher {path} cannot be started", f"chmod +x {path}")
    return path


def _launcher_words(launcher: Path) -> tuple[str, ...]:
    """Return the words that start a launcher, whose executable bit an installer may have lost."""
    if os.access(launcher, os.X_OK):
        return (str(launcher),)
    return (*_script_interpreter(launcher), str(launcher))


def _script_interpreter(path: Path) -> list[str]:
    """Return the words of a script's first line, #!, as execve(2) reads them."""
    with path.open("rb") as file:
        first = file.readline(256)
    return os.fsdecode(first)[2:].strip().split(maxsplit=1) if first.startswith(b"#!") else []
