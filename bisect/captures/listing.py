"""What lies in a folder of captures: read from the heads of the files, without torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..errors import UsageError
from .places import INPUTS, OUTPUTS
from .reading import Unreadable, look
from .record import Record
from .tree import leaves

_ENDING = ".safetensors"


@dataclass(frozen=True)
class Listed:
    """A captured call: its inputs, and what came of it."""

    path: str
    record: Record
    bytes: int  # of the inputs' file
    outcome: str  # "returned", "raised ERROR", or "" if forward has not ended

    def as_data(self) -> dict[str, object]:
        """Return it for JSON, without the nested structure."""
        said = {key: value for key, value in vars(self.record).items() if key != "tree"}
        del said["kind"], said["raised"]
        whole = {"path": self.path, "bytes": self.bytes, "outcome": self.outcome or None}
        return {**whole, **said, "inputs": dict(inputs(self.record))}


@dataclass(frozen=True)
class Listing:
    """All of a folder."""

    captures: tuple[Listed, ...]  # by time
    unreadable: tuple[Unreadable, ...]


def listed(folder: str) -> Listing:
    """Return what lies in `folder`. Raises UsageError if it is none."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_ENDING))
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", "hangbisect capture list DIR") from None
    there = {os.path.join(folder, name) for name in names}
    outputs = {path for path in there if path.endswith(OUTPUTS)}
    # Outputs are read with their inputs.
    alone = there - {path for path in outputs if path.removesuffix(OUTPUTS) + INPUTS in there}
    found = _listing(sorted(alone), outputs)
    return replace(found, captures=tuple(sorted(found.captures, key=lambda one: one.record.at)))


def listed_files(paths: Sequence[str]) -> Listing:
    """Return these files, in their order."""
    return _listing(paths, set(filter(os.path.exists, map(outputs_beside, paths))))


def _listing(paths: Sequence[str], outputs: set[str]) -> Listing:
    found: list[Listed] = []
    unreadable: list[Unreadable] = []
    for path in paths:
        try:
            found.append(_listed(path, outputs))
        except Unreadable as error:
            unreadable.append(error)
    return Listing(tuple(found), tuple(unreadable))


def outputs_beside(path: str) -> str:
    """Return where the outputs of a call lie, of the file of its inputs."""
    return path.removesuffix(INPUTS) + OUTPUTS


def _listed(path: str, outputs: set[str]) -> Listed:
    record = look(path)
    if record.kind != "inputs":
        raise Unreadable(path, "these are outputs, without their inputs")
    outcome = ""
    beside = outputs_beside(path)
    if beside in outputs:
        raised = look(beside).raised
        outcome = f"raised {raised.partition(':')[0]}" if raised else "returned"
    return Listed(path, record, os.stat(path).st_size, outcome)


def inputs(record: Record) -> Iterator[tuple[str, str]]:
    """Yield name and form of each input: ("input_ids", "int64[4, 512]"), or its value."""
    for path, one in leaves(record.tree):
        name = path.removeprefix("kwargs.").removeprefix("args.")
        if not isinstance(one, dict):
            yield name, repr(one)
        elif one.get("is") == "tensor":
            yield name, f"{one.get('dtype')}{one.get('shape')}"
        elif one.get("is") == "not kept":
            yield name, f"not kept: {one.get('class')}"
        else:
            yield name, str(one.get("value"))


def forms(record: Record) -> str:
    """Return all inputs on one line."""
    return ", ".join(f"{name} {form}" for name, form in inputs(record))


def total(captures: Sequence[Listed]) -> int:
    """Return the bytes of all inputs."""
    return sum(one.bytes for one in captures)
