"""The file of one call's inputs or outputs: a safetensors file, with nested arguments as JSON in
its header; and what a folder of captures holds beside them: the names of its files, the switch that
a running job looks at once a second, the state that each process writes for `hangbisect capture
status`, and how much a rank may still write. Nothing is executed on either way.

JSON stands for itself: null, booleans, whole numbers, finite numbers, texts, lists. All else is an
object with "is": a tensor, a tuple, a dict, a type or device of torch's, a number that JSON has
not. What has no such form is noted with its class, and not kept.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

from ..base.files import write_whole
from ..base.lazy_dataclass import dataclass
from ..base.words import format_bytes

FOLDER_VARIABLE = "HANGBISECT_CAPTURE_DIR"
FOLDER = "captures"  # in the folder in which the job, or the command, was started
SWITCH = "switch.json"
INPUTS, OUTPUTS = ".inputs.safetensors", ".outputs.safetensors"
_RANK = re.compile(r"-rank(\d{1,9})-")
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.]+")


def find_folder(named: str = "", environ: Mapping[str, str] = os.environ) -> str:
    """Return the absolute path of the folder: as named, as the environment has it, or FOLDER."""
    return os.path.abspath(named or environ.get(FOLDER_VARIABLE) or FOLDER)


def file_stem(name: str, rank: int, at: float) -> str:
    """Return what a capture's files begin with; `at` in seconds since 1970, to the microsecond."""
    whole, micro = divmod(round(at * 1e6), 10**6)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(whole))
    return f"{_UNUSUAL.sub('_', name)[:60]}-rank{rank}-{stamp}.{micro:06}"


def rank_in_name(file: str) -> int | None:
    """Return the rank that a file's name says, None without one."""
    found = _RANK.search(os.path.basename(file))
    return None if found is None else int(found[1])


def state_file(rank: int, pid: int) -> str:
    """Return the name of the file in which a process says whether it captures."""
    return f"state-rank{rank}-{pid}.json"


SWITCH_SCHEMA = 1


@dataclass(frozen=True)
class CaptureLimits:
    """How much a folder of captures may hold."""

    captures: int = 100  # of each rank
    gigabytes: float = 10.0  # of 10^9 bytes, of all ranks together


@dataclass(frozen=True)
class Switch:
    """What the file says while capturing is on."""

    at: float  # when it was switched on, seconds since 1970
    limits: CaptureLimits


def turn_on(folder: str, limits: CaptureLimits) -> None:
    """Switch capturing on for every job that captures into `folder`. Raises OSError."""
    os.makedirs(folder, exist_ok=True)
    said = {"schema": SWITCH_SCHEMA, "at": time.time(), **asdict(limits)}
    write_whole(os.path.join(folder, SWITCH), json.dumps(said, indent=2).encode())


def turn_off(folder: str) -> bool:
    """Switch it off; return whether it was on. Raises OSError."""
    try:
        os.unlink(os.path.join(folder, SWITCH))
    except FileNotFoundError:
        return False
    return True


def read_switch(folder: str) -> Switch | None:
    """Return what the switch says, None while it is off or says nothing that can be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        with open(os.path.join(folder, SWITCH), "rb") as file:
            said = json.loads(file.read(4096))
        limits = CaptureLimits(int(said["captures"]), float(said["gigabytes"]))
        return Switch(float(said["at"]), limits)
    return None


STATE_SCHEMA = 1


@dataclass(frozen=True)
class CaptureState:
    """A process in which modules are captured, and whether they are."""

    rank: int
    host: str
    pid: int
    modules: tuple[str, ...]  # by the names under which they are captured
    switched: float  # the `at` of the switch that it has seen
    stopped: str = ""  # why it captures no more


def write_state(folder: str, state: CaptureState) -> None:
    """Write it. Raises OSError."""
    text = json.dumps({"schema": STATE_SCHEMA, **asdict(state)}, indent=2)
    write_whole(os.path.join(folder, state_file(state.rank, state.pid)), text.encode())


def read_states(folder: str) -> list[CaptureState]:
    """Return those in a folder, by rank; what cannot be read is left out."""
    found = []
    for path in Path(folder).glob("state-rank*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            said = json.loads(path.read_text(encoding="utf-8"))
            if said.pop("schema") == STATE_SCHEMA:
                found.append(CaptureState(**{**said, "modules": tuple(map(str, said["modules"]))}))
    return sorted(found, key=lambda one: (one.rank, one.switched))


def has_ended(state: CaptureState, host: str) -> bool:
    """Return whether its process has ended, which only its own host can tell."""
    return state.host == host and not os.path.exists(f"/proc/{state.pid}")


def select_current(states: Iterable[CaptureState], switched: float) -> list[CaptureState]:
    """Return those that have seen the switch of the time `switched`."""
    return [one for one in states if one.switched == switched]


GIGABYTE = 10**9  # as --max-gb has it
# A job whose checkpoints find no room any more is worse than a capture less.
KEPT_FREE = 1 << 30  # bytes


@dataclass(frozen=True)
class Amount:
    """What a rank has in the folder."""

    captures: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.captures + other.captures, self.bytes + other.bytes)


def measure_rank(folder: str, rank: int) -> Amount:
    """Return what lies in `folder` of one rank, from whichever job. Raises OSError."""
    found = Amount()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((INPUTS, OUTPUTS)) and rank_in_name(entry.name) == rank:
                found += Amount(int(entry.name.endswith(INPUTS)), entry.stat().st_size)
    return found


def why_full(has: Amount, size: int, limits: CaptureLimits, world_size: int, free: int) -> str:
    """Return why a rank may not write `size` bytes more, "" if it may; `free` is what the disk has.

    The bytes are shared out equally: ranks ask nobody how much the others have.
    """
    if has.captures >= limits.captures:
        return f"it has the {limits.captures:,} captures that --max-captures allows"
    share = limits.gigabytes * GIGABYTE / max(world_size, 1)
    if has.bytes + size > share:
        whole = f"--max-gb {limits.gigabytes:g} allows {format_bytes(share)} for each rank"
        return f"{whole}; it has {format_bytes(has.bytes)}, and the next one {format_bytes(size)}"
    if free - size < KEPT_FREE:
        return f"the disk has {format_bytes(free)} left; {format_bytes(KEPT_FREE)} is kept free"
    return ""


SCHEMA = 1
KEY = "hangbisect"  # in the file's metadata
LONGEST = 16 << 20  # bytes of text


@dataclass(frozen=True)
class Record:
    """What is known of a call of forward."""

    kind: Literal["inputs", "outputs"]
    name: str
    module: str  # "package.module.Class"
    rank: int
    world_size: int
    host: str
    pid: int
    at: float  # when forward was called, seconds since 1970; 0.0 if not known
    training: bool  # the module's mode
    grad: bool  # gradients were kept
    tree: Any  # as encode_value has it; of inputs that of a dict of "args" and "kwargs"
    raised: str = ""  # what forward raised, and so has no outputs

    def as_text(self) -> str:
        """Return it as it stands in the file. Raises ValueError if it is too long."""
        text = json.dumps({"schema": SCHEMA, **vars(self)}, allow_nan=False)
        if len(text) > LONGEST:
            raise ValueError(f"what is no tensor takes {len(text):,} bytes; {LONGEST:,} are taken")
        return text


def parse_record(metadata: Mapping[str, str] | None) -> Record:
    """Return what a file's metadata say. Raises ValueError for any other file's."""
    text = (metadata or {}).get(KEY)
    if text is None:
        raise ValueError("it is safetensors, but no capture: nothing in it says of which call")
    if len(text) > LONGEST:
        raise ValueError(f"what is no tensor in it takes {len(text):,} bytes")
    try:
        said = json.loads(text)
        if said.pop("schema") != SCHEMA:
            raise ValueError("it is of another version of hangbisect")
        found = Record(**said)
    except (TypeError, KeyError, AttributeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"what it says of its call cannot be read: {error}") from None
    for field, right in _TYPES.items():
        if type(getattr(found, field)) not in right:
            raise ValueError(f"what it says of its call cannot be read: {field}")
    return found


_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("kind", "name", "module", "host", "raised"), (str,)),
    **dict.fromkeys(("rank", "world_size", "pid"), (int,)),
    **dict.fromkeys(("training", "grad"), (bool,)),
    "at": (float, int),
    "tree": (dict, list, str, int, float, bool, type(None)),
}


DEEPEST = 40
_INT = 1 << 63  # beyond it other readers of JSON go wrong
_KEYS = (str, int, bool, type(None))
Keep = Callable[[Any], str]  # keeps a tensor, returns its name


@dataclass(frozen=True)
class NotKept:
    """Stands where a value was that has no form on disk."""

    what: str  # its class, "package.module.Class"


def encode_value(value: Any, keep: Keep, depth: int = 0) -> Any:
    """Return the JSON for a value; its tensors go to `keep`."""
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int:
        return value if -_INT <= value < _INT else _not_kept(value)
    if type(value) is float:
        return value if math.isfinite(value) else {"is": "float", "value": repr(value)}
    if depth == DEEPEST:
        return _not_kept(value)
    if isinstance(value, (list, tuple)):
        inside = [encode_value(one, keep, depth + 1) for one in value]
        return (
            inside
            if type(value) is list
            else {"is": "tuple", **_class_entry(value, tuple), "in": inside}
        )
    if isinstance(value, Mapping) and all(type(key) in _KEYS for key in value):
        inside = [[key, encode_value(one, keep, depth + 1)] for key, one in value.items()]
        return {"is": "dict", **_class_entry(value, dict), "in": inside}
    return _encode_torch(value, keep)


def fields_as_dict(value: Any) -> Any:
    """Return a dataclass as a dict, all else as it is: for outputs, whose class nobody wants."""
    if not is_dataclass(value) or isinstance(value, (type, Mapping)):
        return value
    return {one.name: getattr(value, one.name, None) for one in fields(value)}


def _encode_torch(value: Any, keep: Keep) -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        return _not_kept(value)
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.layout is not torch.strided or value.device.type == "meta" or value.is_quantized:
            return _not_kept(value)
        return {
            "is": "tensor",
            "name": keep(value),
            "shape": list(value.shape),
            "dtype": str(value.dtype).removeprefix("torch."),
            "device": str(value.device),
        }
    if isinstance(value, (torch.dtype, torch.device)):
        return {"is": type(value).__name__, "value": str(value).removeprefix("torch.")}
    return _not_kept(value)


def _class(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _class_entry(value: Any, plain: type) -> dict[str, str]:
    return {} if type(value) is plain else {"class": _class(value)}


def _not_kept(value: Any) -> dict[str, str]:
    return {"is": "not kept", "class": _class(value)}


def decode_value(tree: Any, tensors: Mapping[str, Any]) -> Any:
    """Return the value that `tree` stands for; tuples and dicts are plain ones. Raises ValueError.

    NotKept stands where something could not be kept.
    """
    if isinstance(tree, list):
        return [decode_value(one, tensors) for one in tree]
    if not isinstance(tree, dict):
        return tree
    kind = tree.get("is")
    try:
        if kind == "tensor":
            return _check_tensor(tree, tensors)
        if kind == "tuple":
            return tuple(decode_value(one, tensors) for one in tree["in"])
        if kind == "dict":
            return {key: decode_value(one, tensors) for key, one in tree["in"]}
        if kind == "float" and tree["value"] in ("inf", "-inf", "nan"):
            return float(tree["value"])
        if kind in ("dtype", "device"):
            return _torch_value(kind, tree["value"])
        if kind == "not kept":
            return NotKept(str(tree["class"]))
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"it has a {kind} that cannot be read: {error}") from None
    raise ValueError(f"it holds something that is no capture's: {str(tree)[:80]}")


def _check_tensor(tree: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    tensor = tensors[tree["name"]]
    dtype = str(tensor.dtype).removeprefix("torch.")
    if [*tensor.shape] != tree["shape"] or dtype != tree["dtype"]:
        raise ValueError(f"its tensor {tree['name']} is not {tree['dtype']}{tree['shape']}")
    return tensor


def _torch_value(kind: str, value: str) -> Any:
    torch: Any = sys.modules["torch"]
    found = torch.device(value) if kind == "device" else getattr(torch, value)
    if not isinstance(found, getattr(torch, kind)):
        raise TypeError(value)
    return found


def walk_leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and JSON of what is no list, tuple or dict: ("input_ids", {"is": "tensor"...})."""
    if isinstance(tree, dict) and tree.get("is") in ("tuple", "dict") and "in" in tree:
        named = tree["in"] if tree["is"] == "dict" else enumerate(tree["in"])
        for key, one in named:
            yield from walk_leaves(one, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list):
        for number, one in enumerate(tree):
            yield from walk_leaves(one, f"{path}.{number}" if path else str(number))
    else:
        yield path, tree


class TensorCopies:
    """The tensors of one file: copies on the CPU, as later calls may write into the originals."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._held: list[Any] = []  # so that no id is given twice

    def keep(self, tensor: Any) -> str:
        """Copy a tensor; return its name, the same for the same tensor."""
        if id(tensor) not in self._names:
            name = str(len(self.tensors))
            copy = tensor.detach().to("cpu", copy=True)
            self.tensors[name] = copy.resolve_conj().resolve_neg().contiguous()
            self._names[id(tensor)] = name
            self._held.append(tensor)
        return self._names[id(tensor)]


def encode_call(
    module: Any,
    value: Any,
    *,
    kind: Literal["inputs", "outputs"],
    name: str,
    rank: int,
    world_size: int,
    at: float,
    raised: str = "",
) -> bytes:
    """Return the file of this process's call of `module`. Raises as `encode_file` does."""
    kept, cls, torch = TensorCopies(), type(module), sys.modules["torch"]
    record = Record(
        kind=kind,
        name=name,
        module=f"{cls.__module__}:{cls.__qualname__}",
        rank=rank,
        world_size=world_size,
        host=socket.gethostname(),
        pid=os.getpid(),
        at=at,
        training=bool(module.training),
        grad=bool(torch.is_grad_enabled()),
        tree=encode_value(fields_as_dict(value) if kind == "outputs" else value, kept.keep),
        raised=raised,
    )
    return encode_file(record, kept)


def encode_file(record: Record, kept: TensorCopies) -> bytes:
    """Return the file. Raises ImportError without safetensors, ValueError, or what that raises."""
    from safetensors.torch import save

    torch: Any = sys.modules["torch"]
    with torch.no_grad():
        data: bytes = save(kept.tensors, {KEY: record.as_text()})
    return data
