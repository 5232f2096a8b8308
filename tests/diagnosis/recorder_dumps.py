"""Dumps of torch's flight recorder for NCCL, in the form of each version, made up rank by rank.

There is no GPU here to record them on. The keys, the names of operations and what their states
mean are those of torch 2.4 to 2.13: FlightRecorder.hpp and FlightRecorderDetail.hpp below
torch/csrc/distributed/c10d, and what the installed torch.distributed.flight_recorder reads
(components/types.py, `Op`; components/builder.py). Where the versions differ a row of VERSIONS
says how.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

# A version of the format, and what it does not have yet.
VERSIONS: Mapping[str, frozenset[str]] = {
    "2.0": frozenset(["is_p2p", "pg_status", "timeout_ms", "thread_id", "op_id", "retired"]),
    "2.1": frozenset(["is_p2p", "pg_status", "timeout_ms", "thread_id", "op_id"]),
    "2.3": frozenset(["thread_id", "op_id"]),
    "2.4": frozenset(["thread_id"]),
    "2.10": frozenset(),
}
FRAMES = [
    {"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/x.py", "line": 3252},
    {"name": "train", "filename": "/home/ada/train.py", "line": 20},
]


def entry(
    name: str,
    number: int,
    state: str = "completed",
    group: tuple[str, str] = ("0", "default_pg"),
    **more: Any,
) -> dict[str, Any]:
    """One operation; of a send or a receive `number` is its own count."""
    to_one = name.startswith(("nccl:send", "nccl:recv")) or more.get("is_p2p", False)
    made = {
        "record_id": 0,
        "pg_id": 0,
        "process_group": group,
        "collective_seq_id": 0 if to_one else number,
        "p2p_seq_id": number if to_one else 0,
        "op_id": number,
        "profiling_name": name,
        "time_created_ns": 10**18 + number * 10**9,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": 10**18 if state != "scheduled" else None,
        "time_discovered_completed_ns": 10**18 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": to_one,
        "thread_id": "140000000000000",
    }
    return made | more


def dump(
    entries: Sequence[dict[str, Any]],
    groups: Mapping[str, Sequence[int]] | None = None,
    version: str = "2.10",
    *,
    frames: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """What one rank's recorder holds."""
    lacks = VERSIONS[version]
    made = [
        {key: value for key, value in one.items() if key not in lacks}
        | ({"frames": FRAMES} if frames else {})
        for one in entries
    ]
    last: dict[str, int] = {}
    for one in entries:
        if not one["is_p2p"]:
            last[one["process_group"][0]] = one["collective_seq_id"]
    whole = {
        "version": version,
        "pg_config": {
            name: {"name": name, "desc": "default_pg" if name == "0" else "", "ranks": str([*of])}
            for name, of in (groups or {}).items()
        },
        "pg_status": {name: {"last_enqueued_collective": str(n)} for name, n in last.items()},
        "entries": made,
    }
    return {key: value for key, value in whole.items() if key not in lacks} | more


def rounds(count: int, last: str = "completed", name: str = "nccl:all_reduce") -> list[Any]:
    """`count` operations of the default group; `last` is the state of the last one."""
    return [entry(name, n + 1, "completed" if n + 1 < count else last) for n in range(count)]


def written(one: Mapping[str, Any], form: str) -> bytes:
    """The bytes of a dump's file: torch's pickler writes protocol 2, its JSON has no None."""
    if form == "json":
        return json.dumps(one).encode()
    return pickle.dumps(dict(one), protocol=2)
