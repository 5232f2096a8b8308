"""The files of a matrix: matrix.json after every cell, from which an interrupted one goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bisection.ran import JUDGED, Ran
from ..errors import UsageError
from ..report.matrix import Told, as_json, as_junit
from ..version import VERSION
from ..whole_file import write_whole

FILE, JUNIT = "matrix.json", "junit.xml"


class MatrixRecord:
    """The folder of one matrix."""

    def __init__(self, folder: Path) -> None:
        """Make the folder. Raises UsageError if it cannot be made or written in."""
        self.folder = folder
        self.trouble = ""  # why the last writing failed
        try:
            folder.mkdir(parents=True, exist_ok=True)
            reached = os.access(folder, os.W_OK | os.X_OK)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be made: {error.strerror}", "Name another with --run-dir."
            ) from None
        if not reached:
            raise UsageError(f"nothing can be written in {folder}", "Name another with --run-dir.")

    def write(self, told: Told) -> None:
        """Write what is known. A disk that is full must not end the cells that run."""
        text = json.dumps(as_json(told, VERSION), indent=1, ensure_ascii=False) + "\n"
        self._write(FILE, text)

    def write_junit(self, told: Told) -> None:
        """Write JUnit XML."""
        self._write(JUNIT, as_junit(told))

    def _write(self, name: str, text: str) -> None:
        try:
            write_whole(self.folder / name, text.encode(errors="replace"))
        except OSError as error:
            self.trouble = f"{self.folder / name} cannot be written: {error.strerror}"


@dataclass(frozen=True)
class Recorded:
    """What a matrix that was interrupted left."""

    scenario: str  # its file, or the name of one of ours
    started_in: str
    done: Mapping[str, Ran]  # by mark


def recorded(folder: Path) -> Recorded:
    """Return what is recorded in a folder. Raises UsageError if no matrix can be gone on with.

    Done is what was judged: a cell that was killed, interrupted or never started is run again.
    """
    file = folder / FILE
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        texts = (data["scenario"], data["started_in"])
        done = {cell["mark"]: _ran(cell) for cell in data["cells"] if cell["result"] in JUDGED}
    except OSError as error:
        raise UsageError(
            f"there is no matrix to go on with in {folder}: {FILE}: {error.strerror}",
            "--resume names the run folder of a matrix.",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{file} is no record of a matrix") from None
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{file} is no record of a matrix")
    return Recorded(*texts, done)


def _ran(cell: dict[str, Any]) -> Ran:
    return Ran(
        number=int(cell["number"]),
        name=str(cell["name"]),
        setting={str(name): str(value) for name, value in cell["setting"].items()},
        result=cell["result"],
        where=str(cell["where"]),
        seconds=float(cell["seconds"]),
        command=tuple(str(word) for word in cell["command"]),
        environment={str(name): str(value) for name, value in cell["environment"].items()},
        run_dir=str(cell["run_dir"] or ""),
        mark=str(cell["mark"]),
        cause=cell["cause"],
    )
