"""What torch's own flight recorder wrote down, as JSON or as a pickle, whoever asked it to.

The format is that of torch.distributed.flight_recorder (fr_trace, versions 2.x): a dict with
`entries`, one an operation, `pg_config`, the groups, and `pg_status`, how far each group came.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn

from ..facts import Collective, CollectiveLog
from ..rank.call_sites import JOBS, whose

Source = Literal["torch", "flight recorder"]

MOST_ENTRIES = 1024  # the last ones; torch keeps 2,000

_DTYPES = {
    **{"Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16"},
    **{"Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64"},
    **{"Bool": "bool"},
}


class _Containers(pickle.Unpickler):
    """Loads containers, numbers and texts, of which a dump consists, and nothing else: a pickle
    that names a class or a function would run it.
    """

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"a dump holds no {module}.{name}")


def load(data: bytes) -> Any:
    """Return what a dump holds, a pickle or JSON. Raises ValueError for anything else."""
    try:
        if data[:1] in (b"{", b"["):
            return json.loads(data)
        return _Containers(io.BytesIO(data)).load()
    except Exception as error:  # garbage makes pickle raise nearly anything
        raise ValueError(f"no dump of the flight recorder: {error!r}") from None


def parse(dump: Any, source: Source, offset: float = 0.0) -> CollectiveLog | None:
    """Return the log in a dump, None for anything else; never raises.

    `offset` is what must be added to the wall clock to have the monotonic one.
    """
    if not isinstance(dump, Mapping) or not isinstance(dump.get("entries"), Sequence):
        return None
    operations = []
    for entry in list(dump["entries"])[-MOST_ENTRIES:]:
        try:
            operations.append(_operation(entry, offset))
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            continue  # one entry that is not as it should be
    return CollectiveLog(
        source, tuple(operations), _members(dump.get("pg_config")), _begun(dump.get("pg_status"))
    )


def _operation(entry: Mapping[str, Any], offset: float) -> Collective:
    name = str(entry["profiling_name"]).partition(":")[2] or str(entry["profiling_name"])
    kind = name.partition(" ")[0]
    to_one = bool(entry.get("is_p2p", kind in ("send", "recv")))
    number = entry["p2p_seq_id" if to_one else "collective_seq_id"]
    state = entry.get("state")
    # gloo's are "scheduled" until the end; what is done is retired.
    done = True if state == "completed" or entry.get("retired") is True else None
    if done is None and state in ("scheduled", "started"):
        done = False
    site, between = _site(entry.get("frames") or ())
    return Collective(
        group=str(entry["process_group"][0]),
        kind=kind,
        number=int(number),
        site=site,
        shape=_shape(entry),
        at=round(int(entry.get("time_created_ns") or 0) * 1e-9 + offset, 6),
        done=done,
        between=between,
    )


def _shape(entry: Mapping[str, Any]) -> str:
    """Return the first tensor's type and shape: "float32[4, 8]"."""
    for which in ("input", "output"):
        sizes, dtypes = entry.get(f"{which}_sizes"), entry.get(f"{which}_dtypes")
        if sizes and dtypes:
            dtype = str(dtypes[0])
            return f"{_DTYPES.get(dtype, dtype.lower())}{[int(n) for n in sizes[0]]}"
    return ""


def _site(frames: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the innermost frame of the job's own, and those of libraries inside it."""
    between: list[str] = []
    for frame in frames:
        file, line, name = str(frame["filename"]), frame["line"], str(frame["name"])
        worded = f"{file.rpartition('/')[2]}:{line} {name}"
        if "/torch/" in file:
            continue
        if whose(file) == JOBS:
            return worded, " < ".join(between)
        between.append(worded)
    return (between[0], " < ".join(between[1:])) if between else ("", "")


def _members(groups: Any) -> dict[str, tuple[int, ...]]:
    """Return the members by group: the dump has them as text, "[0, 1]"."""
    found = {}
    for name, about in groups.items() if isinstance(groups, Mapping) else ():
        try:
            ranks = about["ranks"]
            numbers = json.loads(ranks) if isinstance(ranks, str) else ranks
            if name and numbers:
                found[str(name)] = tuple(int(n) for n in numbers)
        except (TypeError, ValueError, KeyError):
            continue
    return found


def _begun(status: Any) -> dict[str, int]:
    found = {}
    for name, about in status.items() if isinstance(status, Mapping) else ():
        try:
            found[str(name)] = int(about["last_enqueued_collective"])
        except (TypeError, ValueError, KeyError):
            continue
    return {name: number for name, number in found.items() if number >= 0}
