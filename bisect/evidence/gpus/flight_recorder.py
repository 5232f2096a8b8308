"""What torch's own flight recorder wrote down, as JSON or as a pickle, whoever asked it to.

The format is that of torch.distributed.flight_recorder (fr_trace, versions 2.x): a dict with
`entries`, one an operation, `pg_config`, the groups, and `pg_status`, how far each group came.
TorchComms' recorder writes the same keys.

A pickle is read as containers, numbers and texts, from anybody: nothing is called, and what it
costs to read one is bounded by its size. Own dispatch table on the library's unpickler in
Python: the one in C hashes whatever is a key, and a tuple of tuples of tuples that share their
parts, 270 bytes in the file, takes it hours, with the GIL held; sets and classes it makes as
well.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any, ClassVar, Literal, NoReturn

from ...base.rank_facts import BATCH_TO_PEERS, Collective, CollectiveLog
from ...rank.call_sites import JOBS, find_code_owner

MOST_STEPS = 4_000_000  # opcodes and their arguments: a recorder's dump of 3 MiB has 500,000
_ALLOWED_OPCODES = (
    *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE"),
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE"),
    *("EMPTY_LIST", "LIST", "APPEND", "APPENDS"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS"),
    *("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"),
    *("POP", "POP_MARK", "GLOBAL", "STACK_GLOBAL"),  # the last two only for what they name
)


class _CountedSteps(io.BytesIO):
    """A file that is read in so many steps at most."""

    left = MOST_STEPS

    def read(self, size: int | None = -1, /) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise pickle.UnpicklingError(f"it has more than {MOST_STEPS:,} steps")
        return super().read(size)


_Load = Callable[[Any], None]
_LIBRARY_DISPATCH: dict[int, _Load] = pickle._Unpickler.dispatch
_SETITEM, _SETITEMS, _DICT = pickle.SETITEM[0], pickle.SETITEMS[0], pickle.DICT[0]


def _check_keys(keys: list[Any]) -> None:
    if not all(type(key) in (str, int, bytes) for key in keys):
        raise pickle.UnpicklingError("a key that is neither a text nor a number")


def _load_setitem(unpickler: Any) -> None:
    _check_keys(unpickler.stack[-2:-1])  # ..., dict, key, value
    _LIBRARY_DISPATCH[_SETITEM](unpickler)


def _load_setitems(unpickler: Any) -> None:
    _check_keys(unpickler.stack[::2])  # key, value, ... since the mark
    _LIBRARY_DISPATCH[_SETITEMS](unpickler)


def _load_dict(unpickler: Any) -> None:
    _check_keys(unpickler.stack[::2])
    _LIBRARY_DISPATCH[_DICT](unpickler)


_PLAIN_DISPATCH = [
    (code, _LIBRARY_DISPATCH[code])
    for code in (getattr(pickle, name)[0] for name in _ALLOWED_OPCODES)
]


class _PlainUnpickler(pickle._Unpickler):
    """Makes lists, tuples, dicts with plain keys, texts and numbers, and nothing else."""

    dispatch: ClassVar[dict[int, _Load]] = {
        **dict(_PLAIN_DISPATCH),
        **{_SETITEM: _load_setitem, _SETITEMS: _load_setitems, _DICT: _load_dict},
    }

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse it."""
        raise pickle.UnpicklingError(f"a dump holds no {module[:80]}.{name[:80]}")


def load_plain(data: bytes) -> Any:
    """Return what a pickle holds. Raises nearly anything for what holds more than plain things.

    Parts of it may be shared: do not write it as a text, compare or hash it, only take out of it.
    """
    return _PlainUnpickler(_CountedSteps(data)).load()


LogSource = Literal["torch", "flight recorder"]

MOST_ENTRIES = 1024  # the last ones; torch keeps 2,000
_LONGEST = 1 << 12  # characters of a text
_LONGEST_LIST = 1 << 23  # of the members of a group, as text
_DIGITS = 20  # of a number that is written as a text
_LARGEST = 1 << 63
_DIMS = 16
_MOST_FRAMES = 200
_MOST_GROUPS = 1 << 14
_MOST_MEMBERS = 1 << 20

# What the job called, where the recorder names what it is made of.
_SPELLED = {"all_reduce_barrier": "barrier"}
_DTYPES = {
    **{"Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16"},
    **{"Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64"},
    **{"Bool": "bool"},
}


def load_dump(data: bytes) -> Any:
    """Return what a dump holds, a pickle or JSON. Raises ValueError for anything else.

    A pickle that names a class or a function would run it: none is read.
    """
    try:
        if data[:1] in (b"{", b"["):
            return json.loads(data)
        return load_plain(data)
    except Exception as error:  # garbage makes pickle raise nearly anything
        raise ValueError(f"no dump of the flight recorder: {_format_error(error)}") from None


def _format_error(error: Exception) -> str:
    plain = all(isinstance(one, str | int) for one in error.args)
    return f"{type(error).__name__}: {error}"[:200] if plain else type(error).__name__


def parse_dump(dump: Any, source: LogSource, offset: float = 0.0) -> CollectiveLog | None:
    """Return the log in a dump, None for anything else; never raises.

    `offset` is what must be added to the wall clock to have the monotonic one.
    """
    if not isinstance(dump, Mapping) or not isinstance(dump.get("entries"), Sequence):
        return None
    operations = []
    groups = _parse_members(dump.get("pg_config"))
    for entry in dump["entries"][-MOST_ENTRIES:]:
        try:
            operations.append(_parse_operation(entry, offset, groups))
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            continue  # one entry that is not as it should be
    return CollectiveLog(
        source,
        _end_parts_of_batches(operations),
        groups,
        _parse_begun(dump.get("pg_status")),
    )


def counts_all_together(dump: Any) -> bool:
    """Return whether one counter numbers the operations of all groups, and sends among them, as
    TorchComms' recorder does (collective_seq_id_ in record of its hooks/fr/FlightRecorder.cpp, by
    the same file name as torch's): of several groups its numbers say nothing. Never raises.
    """
    numbers: list[int] = []
    groups: set[str] = set()
    sends = False
    try:
        for entry in dump["entries"][-MOST_ENTRIES:]:
            name = _cut_text(entry["profiling_name"]).rpartition(":")[2]
            if entry.get("is_p2p"):
                continue
            sends = sends or name.partition(" ")[0] in ("send", "recv")
            groups.add(_cut_text(entry["process_group"][0]))
            numbers.append(_parse_number(entry["collective_seq_id"]))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        return False
    return sends or (len(groups) > 1 and all(a < b for a, b in pairwise(numbers)))


def _end_parts_of_batches(operations: Sequence[Collective]) -> tuple[Collective, ...]:
    """Return the operations with the sends and receives done of each batch that is done: only the
    batch itself has events on the GPU by which the recorder sees that (ProcessGroupNCCL.cpp,
    pointToPoint and endCoalescing).
    """
    over = {
        (one.group, one.number) for one in operations if one.kind == BATCH_TO_PEERS and one.done
    }
    return tuple(
        replace(one, done=True) if one.peer is not None and (one.group, one.number) in over else one
        for one in operations
    )


# "nccl:send 0->1", "nccl:recv 0<-1": ranks of the group, its own first (ProcessGroupNCCL.cpp).
_ENDS = re.compile(r"(?:send|recv) \d{1,7}(?:->|<-)(?P<peer>\d{1,7})$")


def _parse_operation(
    entry: Mapping[str, Any], offset: float, groups: Mapping[str, tuple[int, ...]]
) -> Collective:
    named = _cut_text(entry["profiling_name"])
    name = named.partition(":")[2] or named
    kind = name.partition(" ")[0]
    kind = _SPELLED.get(kind, kind)
    to_one = bool(_plain_value(entry.get("is_p2p", kind in ("send", "recv"))))
    if to_one and kind not in ("send", "recv"):
        kind = BATCH_TO_PEERS  # several at once: numbered as sends and receives are
    group = _cut_text(entry["process_group"][0])
    number = entry["p2p_seq_id" if to_one else "collective_seq_id"]
    state = _plain_value(entry.get("state"))
    # gloo's are "scheduled" until the end; what is done is retired.
    done = True if state == "completed" or entry.get("retired") is True else None
    if done is None and state in ("scheduled", "started"):
        done = False
    site, between = _find_site(entry.get("frames") or ())
    return Collective(
        group=group,
        kind=kind,
        number=_parse_number(number),
        site=site,
        shape=_format_shape(entry),
        at=round(_parse_number(entry.get("time_created_ns") or 0) * 1e-9 + offset, 6),
        done=done,
        between=between,
        peer=_find_peer(name, groups.get(group, ())) if to_one else None,
    )


def _find_peer(name: str, members: Sequence[int]) -> int | None:
    """Return the rank that an operation of that name is for, None if the name does not say it."""
    found = _ENDS.search(name)
    number = int(found["peer"]) if found else None
    if number is None or (members and number >= len(members)):
        return None
    return members[number] if members else number


# ---- what is taken out of a dump: of anybody's, whose parts may hold one another -----------------


def _plain_value(value: Any) -> str | int | None:
    """Return a text, cut, a number or None. Raises TypeError for anything else."""
    if value is None or type(value) in (int, bool):
        return value if value is None or abs(value) < _LARGEST else _LARGEST
    if type(value) is str:
        return value[:_LONGEST]
    raise TypeError(f"a {type(value).__name__}")


def _cut_text(value: Any) -> str:
    return str(_plain_value(value))


def _parse_number(value: Any) -> int:
    """Return a number, which may be a text. Raises TypeError, ValueError for anything else."""
    plain = _plain_value(value)
    if plain is None or (isinstance(plain, str) and len(plain) > _DIGITS):
        raise ValueError("no number")
    return int(plain)


def _format_shape(entry: Mapping[str, Any]) -> str:
    """Return the first tensor's type and shape: "float32[4, 8]"."""
    for which in ("input", "output"):
        sizes, dtypes = entry.get(f"{which}_sizes"), entry.get(f"{which}_dtypes")
        if (
            isinstance(sizes, list | tuple)
            and isinstance(dtypes, list | tuple)
            and sizes
            and dtypes
        ):
            dtype = _cut_text(dtypes[0])
            return (
                f"{_DTYPES.get(dtype, dtype.lower())}{[_parse_number(n) for n in sizes[0][:_DIMS]]}"
            )
    return ""


def _find_site(frames: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the innermost frame of the job's own, and those of libraries inside it."""
    between: list[str] = []
    for frame in frames[:_MOST_FRAMES]:
        file, line, name = (
            _cut_text(frame["filename"]),
            _parse_number(frame["line"]),
            _cut_text(frame["name"]),
        )
        worded = f"{file.rpartition('/')[2]}:{line} {name}"
        if "/torch/" in file:
            continue
        if find_code_owner(file) == JOBS:
            return worded, " < ".join(between)
        between.append(worded)
    return (between[0], " < ".join(between[1:])) if between else ("", "")


def _parse_members(groups: Any) -> dict[str, tuple[int, ...]]:
    """Return the members by group: the dump has them as text, "[0, 1]"."""
    found = {}
    for name, about in _items(groups):
        try:
            ranks = about["ranks"]
            numbers = json.loads(ranks[:_LONGEST_LIST]) if isinstance(ranks, str) else ranks
            if name and numbers and isinstance(numbers, list | tuple):
                found[_cut_text(name)] = tuple(_parse_number(n) for n in numbers[:_MOST_MEMBERS])
        except (TypeError, ValueError, KeyError, RecursionError):
            continue
    return found


def _parse_begun(status: Any) -> dict[str, int]:
    found = {}
    for name, about in _items(status):
        try:
            found[_cut_text(name)] = _parse_number(about["last_enqueued_collective"])
        except (TypeError, ValueError, KeyError):
            continue
    return {name: number for name, number in found.items() if number >= 0}


def _items(found: Any) -> list[tuple[Any, Any]]:
    return list(islice(found.items(), _MOST_GROUPS)) if isinstance(found, Mapping) else []
