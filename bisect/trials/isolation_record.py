"""isolation.json: all that an isolation knows, written after every trial, and read to go on.

Anybody may have changed the file since it was written: each field of the dataclasses that are
made from it is checked against its type.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..base.errors import UsageError
from ..base.facts import Trial
from ..base.files import write_whole
from ..base.masking import mask, mask_command, mask_text
from ..report.isolation import report_text
from ..search.isolation import Isolation

ISOLATION_FILE, REPORT_FILE = "isolation.json", "report.md"
_ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)=(\S+)")


@dataclass(frozen=True)
class RecordedIsolation:
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
        text = json.dumps(isolation_json(isolation), indent=2, ensure_ascii=False) + "\n"
        write_whole(self.folder / ISOLATION_FILE, text.encode(errors="replace"))

    def report(self, isolation: Isolation) -> None:
        """Write the answer for people. Raises OSError."""
        text = report_text(_mask_isolation(isolation), folder=str(self.folder))
        write_whole(self.folder / REPORT_FILE, text.encode(errors="replace"))


def isolation_json(isolation: Isolation) -> dict[str, Any]:
    """Return the object that isolation.json holds, secrets masked."""
    hidden = _mask_isolation(isolation)
    plain: dict[str, Any] = asdict(hidden)
    plain["options"]["masked"] = hidden.command != isolation.command
    for trial in plain["trials"]:
        trial["command"] = mask_command(trial["command"])
        environment = trial["environment"].items()
        trial["environment"] = {name: mask(name, value) for name, value in environment}
    ordered = {"schema": plain.pop("schema"), **plain}
    found: dict[str, Any] = json.loads(json.dumps(ordered, default=dict))
    return found


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


def read_isolation(folder: Path) -> RecordedIsolation:
    """Return what was recorded in a folder. Raises UsageError if there is nothing to go on with."""
    file = folder / ISOLATION_FILE
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["schema"] != 1:
            raise UsageError(f"{file} has schema {data['schema']!r}, and 1 is what can be read")
        wanted = {name: data[name] for name in ("command", "options", "trials")}
        return dataclass_from_json(RecordedIsolation, wanted)
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


T = TypeVar("T")
_PLAIN = (str, int, bool, NoneType)


def dataclass_from_json(kind: type[T], data: Any) -> T:
    """Return what `data`, a JSON object, says as a `kind`: of each field what its type wants.

    Raises ValueError for a field that is missing, unknown, or has another type.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{data!r} is no object")
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    for name in data:
        if name not in known:
            raise ValueError(f"there is no {name!r}")
    for name, field in known.items():
        if name not in data and field.default is field.default_factory is MISSING:
            raise ValueError(f"{name!r} is missing")
    found = {}
    for name, value in data.items():
        try:
            found[name] = _convert(hints[name], value)
        except ValueError:
            raise ValueError(f"{name!r} cannot be {value!r}"[:200]) from None
    return kind(**found)


def _convert(hint: Any, value: Any) -> Any:
    """Return a value as its type wants it. Raises ValueError."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _convert_to_one_of(inner, value)
    if hint is Any:
        return value
    if origin is Literal and isinstance(value, str) and value in inner:
        return value
    if origin is tuple and isinstance(value, list):
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_convert(kind, one) for kind, one in zip(kinds, value, strict=True))
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, dict):
        return {name: _convert(inner[1], one) for name, one in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return dataclass_from_json(hint, value)
    if hint is float and type(value) in (int, float) and math.isfinite(value):
        return value
    if hint in _PLAIN and type(value) is hint:
        return value
    raise ValueError


def _convert_to_one_of(hints: tuple[Any, ...], value: Any) -> Any:
    for hint in hints:
        try:
            return _convert(hint, value)
        except ValueError:
            continue
    raise ValueError
