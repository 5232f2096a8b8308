"""Captures read outside their job: one file, verified; all that lies in a folder, from the heads of
the files and without torch; the lines of `hangbisect capture list` and `status`; and dumps of
others' making (.pt, .pkl), read without executing what they name, and written as captures: one file
in, one file out.
"""

from __future__ import annotations

import calendar
import io
import os
import pickle
import re
import stat
import time
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.errors import HangbisectError, UsageError
from ..base.files import named, write_whole
from ..base.lazy_dataclass import dataclass
from ..base.words import format_bytes, replace_unprintable
from . import capture_file
from .capture_file import (
    GIGABYTE,
    INPUTS,
    OUTPUTS,
    CaptureState,
    Record,
    Switch,
    TensorCopies,
    decode_value,
    encode_file,
    encode_value,
    has_ended,
    select_current,
    walk_leaves,
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


LARGEST = 8 << 30  # bytes
_GLOBAL = re.compile(r"(?:Unsupported (?:global: GLOBAL|class|operand)|GLOBAL) ([\w.]+)")


def read_dump(path: str) -> Any:
    """Return what a file holds, on the CPU. Imports torch. Raises Unreadable: what was refused."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable(path, "it is no file")
        if found.st_size > LARGEST:
            raise Unreadable(path, f"it has more than {format_bytes(LARGEST)}")
        with open(path, "rb") as file:
            return _load_with_torch(path) if _is_saved_by_torch(file) else _Tensors(file).load()
    except OSError as error:
        raise Unreadable(path, error.strerror or str(error)) from None
    except Unreadable:
        raise
    except Exception as error:  # a file may break a reader in any way
        raise Unreadable(path, _explain_failure(error)) from None


def _is_saved_by_torch(file: Any) -> bool:
    """Return whether torch.save has written it: a zip since torch 1.6, with a mark before that."""
    found = zipfile.is_zipfile(file)
    file.seek(0)
    found = found or file.read(32).find(_MARK) != -1
    file.seek(0)
    return found


def _load_with_torch(file: Any) -> Any:
    import torch

    return torch.load(file, map_location="cpu", weights_only=True)


# serialization.MAGIC_NUMBER as pickle writes it.
_MARK = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


class _Refused(pickle.UnpicklingError):
    pass


class _Tensors(pickle.Unpickler):
    """Reads plain pickles of containers and tensors. Whatever else a pickle names is refused."""

    def find_class(self, module: str, name: str) -> Any:
        import torch

        made: dict[str, Callable[..., Any]] = {
            "collections.OrderedDict": OrderedDict,
            "torch._utils._rebuild_tensor_v2": torch._utils._rebuild_tensor_v2,
            "torch._utils._rebuild_parameter": torch._utils._rebuild_parameter,
            # Its bytes are a pickle again.
            "torch.storage._load_from_bytes": lambda data: _load_with_torch(io.BytesIO(data)),
            "torch.device": torch.device,
            "torch.Size": torch.Size,
        }
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if f"{module}.{name}" not in made:
            raise _Refused(f"refused: it names {module}.{name}")
        return made[f"{module}.{name}"]


def _explain_failure(error: Exception) -> str:
    if isinstance(error, _Refused):
        return str(error)
    named = _GLOBAL.search(str(error))
    if named is not None:
        return f"refused: it names {named[1]}"
    first = str(error).strip().partition("\n")[0]
    return f"truncated, or no dump of pickle's or torch's ({type(error).__name__}: {first[:160]})"


# What dumps say of a call beside its arguments.
ABOUT = frozenset({"timestamp", "rank", "world_size", "batch_size", "seq_len"})
_STAMP = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)[T_ ](\d\d):?(\d\d):?(\d\d)(?:[._](\d{1,6}))?")


@dataclass(frozen=True)
class ImportedDump:
    """A dump that is a capture now."""

    source: str
    path: str
    left_out: tuple[str, ...]  # names of values that could not be kept


def convert_dump(source: str, folder: str, name: str) -> ImportedDump:
    """Write the capture of a dump into `folder`; return where it is.

    A dict is taken for keyword arguments, a list or tuple for positional ones. Imports torch.
    Raises Unreadable, OSError.
    """
    import torch  # noqa: F401  # what makes tensors below looks for it

    held = read_dump(source)
    args, kwargs, about = _find_arguments(held, source)
    kept = TensorCopies()
    rank = about.get("rank")
    record = Record(
        kind="inputs",
        name=name,
        module="",
        rank=rank if type(rank) is int else named(source) or 0,
        world_size=about["world_size"] if type(about.get("world_size")) is int else 1,
        host="",
        pid=0,
        at=_find_time(str(about.get("timestamp", "")), source),
        training=True,
        grad=True,
        tree=encode_value({"args": args, "kwargs": kwargs}, kept.keep),
    )
    path = os.path.join(folder, f"{capture_file.file_stem(name, record.rank, record.at)}{INPUTS}")
    if os.path.exists(path):
        raise Unreadable(source, f"{path} is there already")
    write_whole(path, encode_file(record, kept))
    return ImportedDump(source, path, tuple(_not_kept(record.tree)))


def _find_arguments(
    held: Any, source: str
) -> tuple[tuple[Any, ...], dict[str, Any], Mapping[str, Any]]:
    if isinstance(held, Mapping) and all(isinstance(key, str) for key in held):
        kwargs = {key: value for key, value in held.items() if key not in ABOUT}
        if kwargs:
            return (), kwargs, {key: held[key] for key in ABOUT & set(held)}
    elif isinstance(held, list | tuple) and held:
        return tuple(held), {}, {}
    raise Unreadable(source, f"its {type(held).__name__} holds no arguments of a forward")


def _not_kept(tree: Any) -> list[str]:
    return [
        f"{path.partition('.')[2]} ({one['class']})"
        for path, one in walk_leaves(tree)
        if isinstance(one, dict) and one.get("is") == "not kept"
    ]


def _find_time(stamp: str, source: str) -> float:
    """Return the time in a dump, else in its file's name, else that of the file; as UTC."""
    found = _STAMP.search(stamp) or _STAMP.search(os.path.basename(source))
    if found is None:
        return os.stat(source).st_mtime
    try:
        text = "".join(found.groups()[:6])
        whole = calendar.timegm(time.strptime(text, "%Y%m%d%H%M%S"))
    except ValueError:
        return os.stat(source).st_mtime
    return whole + float(f"0.{found[7] or 0}")
