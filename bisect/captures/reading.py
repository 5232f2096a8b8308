"""Captures read outside their job: one file, verified; all that lies in a folder, from the heads of
the files and without torch; and the lines of `hangbisect capture list` and `status`.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.errors import HangbisectError, UsageError
from ..base.words import format_bytes, replace_unprintable
from . import capture_file
from .capture_file import Record, decode_value, walk_leaves
from .capture_folder import (
    GIGABYTE,
    INPUTS,
    OUTPUTS,
    CaptureState,
    Switch,
    has_ended,
    select_current,
)


class Unreadable(HangbisectError):
    """A file that is no capture, or not a whole one."""

    help = "Leave it out, or capture again: hangbisect capture on"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")


@dataclass(frozen=True)
class Capture:
    """A file that was read whole."""

    path: str
    record: Record
    value: Any  # of inputs (args, kwargs); of outputs what forward returned


def read_head(path: str) -> Record:
    """Return what a file says; no tensor is read, and torch is not imported. Raises Unreadable."""
    return check_record(_opened(path, "np"), path)


def load(path: str) -> Capture:
    """Return what a file holds, tensors on the CPU. Imports torch. Raises Unreadable."""
    import torch  # noqa: F401  # safetensors would import it; a lack of it is no fault of the file

    file = _opened(path, "pt")
    found = check_record(file, path)
    try:
        value = decode_value(found.tree, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118  # no dict
        if found.kind == "inputs":
            value = (value["args"], value["kwargs"])
            if not (isinstance(value[0], tuple) and isinstance(value[1], dict)):
                raise ValueError("it has no arguments")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(path, f"no capture: {error}") from None
    return Capture(path, found, value)


def check_record(file: Any, path: str) -> Record:
    """Return what an opened file says. Raises Unreadable."""
    try:
        found = capture_file.parse_record(file.metadata())
        for _ in walk_leaves(found.tree):
            pass
    except ValueError as error:
        raise Unreadable(path, str(error)) from None
    except (TypeError, RecursionError) as error:
        raise Unreadable(path, f"no capture: {error}") from None
    return found


def _opened(path: str, framework: str) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
            raise Unreadable(path, "it is no file")
        if not found.st_size:
            raise Unreadable(path, "it is empty")
        return safe_open(path, framework)  # verifies that it is whole
    except OSError as error:
        raise Unreadable(path, error.strerror or str(error)) from None
    except SafetensorError as error:
        raise Unreadable(path, f"truncated, or no safetensors file ({error})") from None


_ENDING = ".safetensors"


@dataclass(frozen=True)
class CapturedCall:
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
        return {**whole, **said, "inputs": dict(describe_inputs(self.record))}


@dataclass(frozen=True)
class Listing:
    """All of a folder."""

    captures: tuple[CapturedCall, ...]  # by time
    unreadable: tuple[Unreadable, ...]


def list_folder(folder: str) -> Listing:
    """Return what lies in `folder`. Raises UsageError if it is none."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_ENDING))
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", "hangbisect capture list DIR") from None
    there = {os.path.join(folder, name) for name in names}
    outputs = {path for path in there if path.endswith(OUTPUTS)}
    # Outputs are read with their inputs.
    alone = there - {path for path in outputs if path.removesuffix(OUTPUTS) + INPUTS in there}
    found = _list_paths(sorted(alone), outputs)
    return replace(found, captures=tuple(sorted(found.captures, key=lambda one: one.record.at)))


def list_files(paths: Sequence[str]) -> Listing:
    """Return these files, in their order."""
    return _list_paths(paths, set(filter(os.path.exists, map(outputs_beside, paths))))


def _list_paths(paths: Sequence[str], outputs: set[str]) -> Listing:
    found: list[CapturedCall] = []
    unreadable: list[Unreadable] = []
    for path in paths:
        try:
            found.append(_list_call(path, outputs))
        except Unreadable as error:
            unreadable.append(error)
    return Listing(tuple(found), tuple(unreadable))


def outputs_beside(path: str) -> str:
    """Return where the outputs of a call lie, of the file of its inputs."""
    return path.removesuffix(INPUTS) + OUTPUTS


def _list_call(path: str, outputs: set[str]) -> CapturedCall:
    record = read_head(path)
    if record.kind != "inputs":
        raise Unreadable(path, "these are outputs, without their inputs")
    outcome = ""
    beside = outputs_beside(path)
    if beside in outputs:
        raised = read_head(beside).raised
        outcome = f"raised {raised.partition(':')[0]}" if raised else "returned"
    return CapturedCall(path, record, os.stat(path).st_size, outcome)


def describe_inputs(record: Record) -> Iterator[tuple[str, str]]:
    """Yield name and form of each input: ("input_ids", "int64[4, 512]"), or its value."""
    for path, one in walk_leaves(record.tree):
        name = path.removeprefix("kwargs.").removeprefix("args.")
        if not isinstance(one, dict):
            yield name, repr(one)
        elif one.get("is") == "tensor":
            yield name, f"{one.get('dtype')}{one.get('shape')}"
        elif one.get("is") == "not kept":
            yield name, f"not kept: {one.get('class')}"
        else:
            yield name, str(one.get("value"))


def format_inputs(record: Record) -> str:
    """Return all inputs on one line."""
    return ", ".join(f"{name} {form}" for name, form in describe_inputs(record))


def sum_bytes(captures: Sequence[CapturedCall]) -> int:
    """Return the bytes of all inputs."""
    return sum(one.bytes for one in captures)


def format_listing(listing: Listing, folder: str, width: int | None) -> Iterator[str]:
    """Yield a head, and a line for each capture, cut at `width`."""
    captures = listing.captures
    ranks = len({one.record.rank for one in captures})
    yield (
        f"{len(captures):,} captured input{_s(len(captures))} of {ranks} rank{_s(ranks)}, "
        f"{format_bytes(sum_bytes(captures))}, in {folder}"
    )
    if not captures:
        return
    longest = max(len("module"), *(len(one.record.name) for one in captures))
    yield f"rank  at (UTC)             {'module':{longest}}  ended     inputs"
    for one in captures:
        line = _format_call(one, longest)
        yield line if width is None else line[:width]


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def _format_call(one: CapturedCall, longest: int) -> str:
    said = one.record
    outcome = one.outcome.partition(" ")[0] or "no"
    when = _utc(said.at)
    line = f"{said.rank:4}  {when}  {said.name:{longest}}  {outcome:8}  {format_inputs(said)}"
    return replace_unprintable(line)


def _utc(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at)) if at else f"{'unknown':19}"
    except (OverflowError, ValueError, OSError):
        return f"{'unknown':19}"


def format_status(
    seen: Switch | None,
    states: Sequence[CaptureState],
    captures: Counter[int],
    host: str,
    folder: str,
) -> Iterator[str]:
    """Yield whether it is on, and a line for each process that has seen it."""
    if seen is None:
        yield f"off, in {folder}; {captures.total():,} captured inputs are there"
        return
    limits = seen.limits
    yield (
        f"on since {_utc(seen.at)} UTC, in {folder}: at most {limits.captures:,} of each rank, "
        f"{format_bytes(limits.gigabytes * GIGABYTE)} in all"
    )
    now = select_current(states, seen.at)
    if not now:
        yield (
            "no module has answered yet: each does at its next forward, if its job has the same "
            "folder and called hangbisect.capture(module)"
        )
    for one in now:
        does = f"stopped: {one.stopped}" if one.stopped else "captures"
        ended = ", has ended" if has_ended(one, host) else ""
        whose = f"rank {one.rank} ({one.host} pid {one.pid}{ended})"
        line = f"{whose}  {', '.join(one.modules)}  {captures[one.rank]:,} inputs  {does}"
        yield replace_unprintable(line)
