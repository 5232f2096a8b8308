"""How a cell of a matrix is started on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..bisection.applying import applied
from ..bisection.cells import Cell
from ..bisection.flags import FIRST_PIPELINE, PIPELINE
from ..bisection.launcher_words import PORTS
from ..bisection.toggle import Toggle
from . import launchers
from .apart import DEVICES
from .launched import Launch

_PACKAGE = Path(__file__).resolve().parents[1]
_PYTHON = re.compile(r"python[0-9.]*")
_LONGEST = 40  # characters of a cell's name in its folder's


@dataclass(frozen=True)
class Around:
    """What all cells of a matrix have in common."""

    table: tuple[Toggle, ...]  # all toggles that there are
    watch: Mapping[str, str]  # options of the watch
    folder: Path  # of the matrix; each cell has one in it
    started_in: Path  # where cells are started
    environment: Mapping[str, str] = field(default_factory=dict)  # that the file gives every cell


def launch(cell: Cell, around: Around, apart: Mapping[str, str], port: int | None = None) -> Launch:
    """Return the launch of a cell; `apart`: what keeps it from others that run at the same time,
    where the file says nothing of it. Of the GPUs that it gives to every cell one has its share.

    Raises UsageError for a launcher that does not exist, or a toggle that cannot be applied.
    """
    environment = {**cell.environment, **_unnamed(cell, around, apart)}
    named = any(name in cell.environment for name in PORTS)
    command, variables = _command(cell, {**os.environ, **environment}, None if named else port)
    environment.update(variables)
    ours = cell.pipeline is not None
    change = applied(command, cell.setting, around.table, {**os.environ, **environment}, ours)
    return Launch(
        command=change.command,
        run_dir=run_dir(cell, around),
        environment={**environment, **change.environment},
        watch={"on-hang": "end", **around.watch},
        limit=cell.limit,
        folder=around.started_in,
    )


def _unnamed(cell: Cell, around: Around, apart: Mapping[str, str]) -> dict[str, str]:
    """Return those of the variables `apart` of which the file says nothing, or that share out what
    it says.
    """
    named = set(cell.environment)
    if cell.environment.get(DEVICES) == around.environment.get(DEVICES):
        named.discard(DEVICES)
    if named.intersection(PORTS):
        named.update(PORTS)
    return {name: value for name, value in apart.items() if name not in named}


def run_dir(cell: Cell, around: Around) -> Path:
    """Return the folder of a cell: its number and its name."""
    word = re.sub(r"[^A-Za-z0-9.=_]+", "-", cell.name).strip("-.")[:_LONGEST]
    return around.folder / (f"{cell.number:02}-{word}" if word else f"{cell.number:02}")


def mark(cell: Cell, around: Around) -> str:
    """Return what tells a cell from all others, today and after an interruption."""
    facts = {**asdict(cell), "watch": dict(around.watch), "table": _own(around)}
    del facts["number"]
    text = json.dumps(facts, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _own(around: Around) -> list[dict[str, object]]:
    return [asdict(toggle) for toggle in around.table if toggle.own]


def _command(
    cell: Cell, environ: Mapping[str, str], port: int | None
) -> tuple[tuple[str, ...], dict[str, str]]:
    words = cell.words
    if cell.pipeline is not None:
        words = (*_ourselves(), *_which(cell.pipeline), *words)
    if cell.launcher is None:
        return words, {}
    if cell.pipeline is None and _PYTHON.fullmatch(Path(words[0]).name):
        words = words[1:]  # a launcher is told what one would give to python
    return launchers.command(
        launchers.find(cell.launcher),
        cell.nodes,
        cell.ranks,
        words,
        ours=cell.pipeline is not None,
        master_port=port,
        environ=environ,
    )


def _ourselves() -> tuple[str, ...]:
    """Return what python runs to walk a pipeline; a checkout is not found as a module by ranks that
    start elsewhere.
    """
    return ("-m", "bisect") if _PACKAGE.name == "hangbisect" else (str(_PACKAGE),)


def _which(pipeline: str) -> tuple[str, ...]:
    return () if pipeline == FIRST_PIPELINE else (PIPELINE, pipeline)


def pasted(launch: Launch, makes: Path | None = None) -> str:
    """Return a line for a shell that does what the launch does; `makes`: a folder that it needs."""
    shown = dict(launch.watch)
    if launch.limit is not None:
        shown["limit"] = f"{launch.limit:g}"
    shown["run-dir"] = str(launch.run_dir.resolve())
    options: list[str] = []
    for name, value in shown.items():
        for one in value.split(",") if name == "timeout" else [value]:
            options += [f"--{name}", one]
    words = [*program(), "run", *options, "--", *launch.command]
    variables = [_assignment(name, value) for name, value in launch.environment.items()]
    steps = [f"cd {shlex.quote(str(launch.folder or Path.cwd()))}"]
    steps += [f"mkdir -p {shlex.quote(str(makes))}"] if makes else []
    return " && ".join([*steps, " ".join([*variables, shlex.join(words)])])


def _assignment(name: str, value: str) -> str:
    rest = os.environ.get("PATH", "")
    if name == "PATH" and rest and value.endswith(f":{rest}"):
        return f'PATH={shlex.quote(value.removesuffix(rest))}"$PATH"'
    return f"{name}={shlex.quote(value)}"


def program() -> tuple[str, ...]:
    """Return the words that start us in a shell."""
    script = Path(sys.executable).parent / "hangbisect"
    if _PACKAGE.name == "hangbisect" and script.is_file():
        return (str(script),)
    return (sys.executable, str(_PACKAGE))
