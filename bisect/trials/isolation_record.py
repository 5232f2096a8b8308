"""isolation.json: all that an isolation knows, written after every trial, and read to go on.

Anybody may have changed the file since it was written: each field is checked against its type.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.errors import UsageError
from ..base.files import write_whole
from ..base.json_codec import from_json, to_json
from ..base.masking import mask, mask_command, mask_text
from ..report.isolation import report_text
from ..search.isolation import Isolation

ISOLATION_FILE, REPORT_FILE = "isolation.json", "report.md"
_ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)=(\S+)")


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
        text = json.dumps(isolation_json(isolation), indent=2, ensure_ascii=False) + "\n"
        write_whole(self.folder / ISOLATION_FILE, text.encode(errors="replace"))

    def report(self, isolation: Isolation) -> None:
        """Write the answer for people. Raises OSError."""
        text = report_text(_mask_isolation(isolation), folder=str(self.folder))
        write_whole(self.folder / REPORT_FILE, text.encode(errors="replace"))


def isolation_json(isolation: Isolation) -> Any:
    """Return the object that isolation.json holds, secrets masked."""
    hidden = _mask_isolation(isolation)
    options = {**hidden.options, "masked": hidden.command != isolation.command}
    trials = tuple(
        replace(
            trial,
            command=tuple(mask_command(trial.command)),
            environment={name: mask(name, value) for name, value in trial.environment.items()},
        )
        for trial in hidden.trials
    )
    return to_json(replace(hidden, options=options, trials=trials))


def _mask_isolation(isolation: Isolation) -> Isolation:
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


def read_isolation(folder: Path) -> Isolation:
    """Return what was recorded in a folder, secrets masked. Raises UsageError if there is nothing
    to go on with.
    """
    file = folder / ISOLATION_FILE
    try:
        return from_json(Isolation, json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}",
            "--resume takes the folder of an isolation that was begun.",
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{file} is not what an isolation writes ({error})",
            "Begin anew, without --resume.",
        ) from None
