"""isolation.json: all that an isolation knows, on disk after every trial, and read to go on."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..bisection.isolation import Isolation
from ..errors import UsageError
from ..facts import Trial
from ..rank.masking import mask, mask_command, mask_text
from ..report.isolation import report_text
from ..whole_file import write_whole
from .from_json import made

FILE, REPORT = "isolation.json", "report.md"
_ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)=(\S+)")


@dataclass(frozen=True)
class Recorded:
    """What an isolation that was interrupted left."""

    command: tuple[str, ...]  # secrets masked
    options: Mapping[str, Any]
    trials: tuple[Trial, ...]

    @property
    def is_masked(self) -> bool:
        """Whether the command is not known as it was, for it held a secret."""
        return bool(self.options.get("masked"))


class IsolationRecord:
    """The files of one isolation."""

    def __init__(self, folder: Path) -> None:
        """Make the folder. Raises UsageError if it cannot be made."""
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be made: {error.strerror}", "Name another with --run-dir."
            ) from None

    def write(self, isolation: Isolation) -> None:
        """Write what is known. Raises OSError."""
        text = json.dumps(as_json(isolation), indent=2, ensure_ascii=False) + "\n"
        write_whole(self.folder / FILE, text.encode(errors="replace"))

    def report(self, isolation: Isolation) -> None:
        """Write the answer for people. Raises OSError."""
        text = report_text(_masked(isolation), folder=str(self.folder))
        write_whole(self.folder / REPORT, text.encode(errors="replace"))


def as_json(isolation: Isolation) -> dict[str, Any]:
    """Return the object that isolation.json holds, secrets masked."""
    hidden = _masked(isolation)
    plain: dict[str, Any] = asdict(hidden)
    plain["options"]["masked"] = hidden.command != isolation.command
    for trial in plain["trials"]:
        trial["command"] = mask_command(trial["command"])
        environment = trial["environment"].items()
        trial["environment"] = {name: mask(name, value) for name, value in environment}
    ordered = {"schema": plain.pop("schema"), **plain}
    found: dict[str, Any] = json.loads(json.dumps(ordered, default=dict))
    return found


def _masked(isolation: Isolation) -> Isolation:
    """Return it without the secrets of its command, in the lines to paste and in what was printed
    as well.
    """
    command = tuple(mask_command(isolation.command))
    pairs = [pair for pair in zip(isolation.command, command, strict=True) if pair[0] != pair[1]]

    def masked(line: str) -> str:
        for secret, shown in pairs:
            line = line.replace(shlex.quote(secret), shown).replace(secret, shown)
        line = _ASSIGNED.sub(lambda found: f"{found[1]}={mask(found[1], found[2])}", line)
        return mask_text(line)

    return replace(
        isolation,
        command=command,
        trials=tuple(replace(trial, why=masked(trial.why)) for trial in isolation.trials),
        paste=masked(isolation.paste),
        why=masked(isolation.why),
        next=masked(isolation.next),
    )


def read(folder: Path) -> Recorded:
    """Return what was recorded in a folder. Raises UsageError if there is nothing to go on with."""
    file = folder / FILE
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["schema"] != 1:
            raise UsageError(f"{file} has schema {data['schema']!r}, and 1 is what can be read")
        wanted = {name: data[name] for name in ("command", "options", "trials")}
        return made(Recorded, wanted)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}",
            "--resume takes the folder of an isolation that was begun.",
        ) from None
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{file} is not what an isolation writes ({type(error).__name__}: {error})",
            "Begin anew, without --resume.",
        ) from None
