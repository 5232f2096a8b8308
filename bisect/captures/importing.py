"""Older dumps of inputs as captures: one file in, one file out."""

from __future__ import annotations

import calendar
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..dumps.rank_of import named
from ..whole_file import write_whole
from . import older, places
from .places import INPUTS
from .reading import Unreadable
from .record import Record
from .tree import as_json, leaves
from .writing import Kept, as_bytes

# What dumps say of a call beside its arguments.
ABOUT = frozenset({"timestamp", "rank", "world_size", "batch_size", "seq_len"})
_STAMP = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)[T_ ](\d\d):?(\d\d):?(\d\d)(?:[._](\d{1,6}))?")


@dataclass(frozen=True)
class Imported:
    """A dump that is a capture now."""

    source: str
    path: str
    left_out: tuple[str, ...]  # names of values that could not be kept


def convert(source: str, folder: str, name: str) -> Imported:
    """Write the capture of a dump into `folder`: a dict is taken for keyword arguments, a list or
    tuple for positional ones. Imports torch. Raises Unreadable, OSError.
    """
    import torch  # noqa: F401  # what makes tensors below looks for it

    held = older.read(source)
    args, kwargs, about = _arguments(held, source)
    kept = Kept()
    rank = about.get("rank")
    record = Record(
        kind="inputs",
        name=name,
        module="",
        rank=rank if type(rank) is int else named(source) or 0,
        world_size=about["world_size"] if type(about.get("world_size")) is int else 1,
        host="",
        pid=0,
        at=_at(str(about.get("timestamp", "")), source),
        training=True,
        grad=True,
        tree=as_json({"args": args, "kwargs": kwargs}, kept.keep),
    )
    path = os.path.join(folder, f"{places.stem(name, record.rank, record.at)}{INPUTS}")
    if os.path.exists(path):
        raise Unreadable(source, f"{path} is there already")
    write_whole(path, as_bytes(record, kept))
    return Imported(source, path, tuple(_not_kept(record.tree)))


def _arguments(held: Any, source: str) -> tuple[tuple[Any, ...], dict[str, Any], Mapping[str, Any]]:
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
        for path, one in leaves(tree)
        if isinstance(one, dict) and one.get("is") == "not kept"
    ]


def _at(stamp: str, source: str) -> float:
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
