"""Dumps of others' making (.pt, .pkl), read without executing what they name, and written as
captures: one file in, one file out.
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
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.files import write_whole
from ..base.rank_of_file import named
from ..base.words import format_bytes
from . import capture_folder
from .capture_file import Record, TensorCopies, encode_file, encode_value, walk_leaves
from .capture_folder import INPUTS
from .reading import Unreadable

LARGEST = 8 << 30  # bytes
_GLOBAL = re.compile(r"(?:Unsupported (?:global: GLOBAL|class|operand)|GLOBAL) ([\w.]+)")


def read_dump(path: str) -> Any:
    """Return what a file holds, tensors on the CPU. Imports torch. Raises Unreadable, which names
    what was refused.
    """
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
    """Write the capture of a dump into `folder`: a dict is taken for keyword arguments, a list or
    tuple for positional ones. Imports torch. Raises Unreadable, OSError.
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
    path = os.path.join(folder, f"{capture_folder.file_stem(name, record.rank, record.at)}{INPUTS}")
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
