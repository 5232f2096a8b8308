"""A run folder as one object: of a watched job, of `attach`, of an isolation, of a matrix."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...evidence.aside import within
from ...monitor.heard import BADNESS
from .event_lines import events_of
from .files import Files
from .shape import ByName, decoded, fitted
from .trials import KINDS, Trial, trials_of
from .verdict_shape import verdict_of

LIMIT = 30.0  # seconds for all of it
_MIB = 1 << 20
MOST = {  # bytes
    "verdict.json": 4 * _MIB,
    "evidence.json": 128 * _MIB,
    "environment.json": 16 * _MIB,
    "isolation.json": 64 * _MIB,
    "matrix.json": 64 * _MIB,
    "stack": 1 * _MIB,
    "stacks": 48 * _MIB,  # all of them together
}
MOST_STACKS = 8192
MOST_NODES = 1024
_PART = re.compile(r"(node|attempt)-(\d{1,6})")
_ENVIRONMENT = {
    "versions": ByName(str),
    "host": str,
    "processors": int,
    "kernel": str,
    "ranks": ByName(ByName(str)),
}


@dataclass(frozen=True)
class KeptRun:
    """What a run folder holds. Nothing in it is trusted: texts may hold anything."""

    folder: Path  # as it was named
    kind: str = "run"  # or "isolation", "matrix"
    verdict: Mapping[str, Any] = field(default_factory=dict)  # schema 1, whole; {}: there is none
    # Every one has "t" (text) and "at" (seconds, monotonic); "wall" (seconds since 1970) and "rank"
    # are numbers where they are there. By "at".
    events: tuple[Mapping[str, Any], ...] = ()
    evidence: Mapping[str, Any] | None = None  # as it is; `facts.py` makes facts of it
    environment: Mapping[str, Any] | None = None  # versions, host, processors, kernel, ranks
    stacks: Mapping[str, str] = field(default_factory=dict)  # by file name, but for merged.txt
    merged: str = ""  # stacks/merged.txt
    nodes: tuple[KeptRun, ...] = ()  # the same of the other nodes
    trials: tuple[Trial, ...] = ()
    answer: Mapping[str, Any] = field(default_factory=dict)  # isolation.json or matrix.json
    attempt: int = 0
    missing: tuple[str, ...] = ()  # sentences: what could not be read, or only in part

    @property
    def outcome(self) -> str:
        """Return the verdict's outcome, "" without one."""
        return str(self.verdict.get("outcome", ""))

    @property
    def world_size(self) -> int:
        """Return how many ranks the job has, as far as that is known."""
        return int(self.verdict.get("world_size", 0))

    @property
    def everywhere(self) -> tuple[KeptRun, ...]:
        """Return this node's and those of all others."""
        return (self, *self.nodes)


def read(folder: Path | str, limit: float = LIMIT) -> KeptRun:
    """Return what a run folder holds, as far as it can be read within `limit` seconds. Of a job
    that was started again after a failure it is the last attempt.

    Raises UsageError if there is no such folder, or nothing of ours in it.
    """
    folder = Path(folder)
    until = time.monotonic() + limit
    _check(folder, limit)
    found = _of_folder(folder, until, "")
    if found.kind != "run":
        return found
    parts = _parts(folder, until)
    all_of_it = [one for one in (found, *parts) if one.verdict or one.events or one.evidence]
    if not all_of_it:
        why = f" ({'; '.join(found.missing)})" if found.missing else ""
        raise UsageError(
            f"{folder} is a folder without a verdict{why}",
            "It takes the folder of a run, an isolation or a matrix: runs/20261120T174812-a1",
        )
    return _together(folder, all_of_it)


def _check(folder: Path, limit: float) -> None:
    try:
        is_folder = within(limit, folder.is_dir)
    except TimeoutError:
        raise UsageError(f"{folder} does not answer within {limit:.0f} s") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(folder)!r} cannot be read: {error}") from None
    if not is_folder:
        raise UsageError(f"{folder} is no folder", "Name the run folder: runs/20261120T174812-a1")


def _together(folder: Path, parts: Sequence[KeptRun]) -> KeptRun:
    """Return the last attempt, with the worst verdict of its nodes."""
    last = max(one.attempt for one in parts)
    first, *others = [one for one in parts if one.attempt == last]
    verdicts = [one.verdict for one in (first, *others) if one.verdict]
    worst = max(verdicts, key=lambda verdict: BADNESS.index(verdict["outcome"]), default={})
    told = [sentence for one in (first, *others) for sentence in one.missing]
    earlier = sum(one.attempt < last for one in parts)
    if earlier:
        told.append(f"this is attempt {last}; of earlier ones {earlier} folders were left out")
    return replace(first, folder=folder, verdict=worst, nodes=tuple(others), missing=tuple(told))


def _parts(folder: Path, until: float, named: str = "", attempt: int = 0) -> list[KeptRun]:
    """Return what lies in the folders of nodes and attempts below `folder`."""
    missing: list[str] = []
    found: list[KeptRun] = []
    for name in Files(folder, until, missing).names():
        part = _PART.fullmatch(name)
        inside = folder / name
        if part is None or len(found) >= MOST_NODES or inside.is_symlink():
            continue
        number = int(part[2]) if part[1] == "attempt" else attempt
        found.append(replace(_of_folder(inside, until, f"{named}{name}/"), attempt=number))
        if part[1] == "node":
            found += _parts(inside, until, f"{named}{name}/", number)
    return found


def _of_folder(folder: Path, until: float, named: str) -> KeptRun:
    missing: list[str] = []
    files = Files(folder, until, missing, named)
    for kind, name in KINDS.items():
        answer = _json(files, name)
        if isinstance(answer, dict):
            trials = trials_of(kind, answer, missing)
            return KeptRun(folder, kind=kind, trials=trials, answer=answer, missing=tuple(missing))
    data = _json(files, "verdict.json")
    verdict = {} if data is None else verdict_of(data, missing)
    evidence = _json(files, "evidence.json")
    stacks = _stacks(files)
    return KeptRun(
        folder,
        verdict=verdict,
        events=events_of(files),
        evidence=evidence if isinstance(evidence, dict) else None,
        environment=_environment(files),
        merged=stacks.pop("merged.txt", ""),
        stacks=stacks,
        missing=tuple(missing),
    )


def _json(files: Files, name: str) -> Any:
    """Return what a file holds; None if there is none, or it is no JSON."""
    data = files.whole(name, MOST[name])
    if data is None:
        return None
    try:
        return decoded(data)
    except ValueError as error:
        files.say(f"{name} is no JSON: {str(error)[:200]}")
    return None


def _environment(files: Files) -> Mapping[str, Any] | None:
    data = _json(files, "environment.json")
    if data is None:
        return None
    wrong: list[str] = []
    found: dict[str, Any] = fitted(_ENVIRONMENT, data, "", wrong)
    if wrong:
        files.say(f"environment.json: {len(wrong)} values are of another kind, or were cut")
    found["ranks"] = {rank: them for rank, them in found["ranks"].items() if _is_number(rank)}
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 8


def _stacks(files: Files) -> dict[str, str]:
    names = [name for name in files.names("stacks") if not name.startswith(".")]
    read = files.heads("stacks", names[:MOST_STACKS], MOST["stack"], MOST["stacks"])
    if len(read) < len(names):
        files.say(f"stacks: {len(names) - len(read)} of {len(names)} files were left out")
    if long := sum(len(data) >= MOST["stack"] for data in read.values()):
        files.say(f"stacks: of {long} files the first {MOST['stack']:,} bytes were read")
    return {
        name.encode("utf-8", "replace").decode("utf-8"): data.decode("utf-8", "replace")
        for name, data in read.items()
    }
