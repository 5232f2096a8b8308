"""A run folder as one object (of a watched job, of `attach`, of an isolation, of a matrix), and the
facts on ranks that its evidence.json was written from.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...base import outcomes
from ...base.deadline import within
from ...base.errors import UsageError
from ...base.facts import RankFacts
from ...base.identity import parse_rank
from ...base.words import format_bytes
from ..facts_json import reader_for
from .folder_files import FolderFiles, list_field, read_events
from .json_shapes import (
    ANSWER_FILES,
    ByName,
    RecordedTrial,
    decode_json,
    fit_shape,
    fit_trials,
    fit_verdict,
)

READ_LIMIT = 30.0  # seconds for all of it
_MIB = 1 << 20
MOST_BYTES = {  # bytes
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
_ENVIRONMENT = {
    "versions": ByName(str),
    "host": str,
    "processors": int,
    "kernel": str,
    "ranks": ByName(ByName(str)),
}


@dataclass(frozen=True)
class RecordedRun:
    """What a run folder holds. Nothing in it is trusted: texts may hold anything."""

    folder: Path  # as it was named
    kind: str = "run"  # or "isolation", "matrix"
    verdict: Mapping[str, Any] = field(default_factory=dict)  # schema 1, whole; {}: there is none
    # Every one has "t" (text) and "at" (seconds, monotonic); "wall" (seconds since 1970) and "rank"
    # are numbers where they are there. By "at".
    events: tuple[Mapping[str, Any], ...] = ()
    evidence: Mapping[str, Any] | None = None  # as it is; `read_rank_facts` makes facts of it
    environment: Mapping[str, Any] | None = None  # versions, host, processors, kernel, ranks
    stacks: Mapping[str, str] = field(default_factory=dict)  # by file name, but for merged.txt
    merged: str = ""  # stacks/merged.txt
    nodes: tuple[RecordedRun, ...] = ()  # the same of the other nodes
    trials: tuple[RecordedTrial, ...] = ()
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
    def everywhere(self) -> tuple[RecordedRun, ...]:
        """Return this node's and those of all others."""
        return (self, *self.nodes)


def read_run(folder: Path | str, limit: float = READ_LIMIT) -> RecordedRun:
    """Return what a run folder holds, as far as it can be read within `limit` seconds. Of a job
    that was started again after a failure it is the last attempt.

    Raises UsageError if there is no such folder, or nothing of ours in it.
    """
    folder = Path(folder)
    until = time.monotonic() + limit
    _check_folder(folder, limit)
    found = _read_folder(folder, until, "")
    if found.kind != "run":
        return found
    parts = _read_parts(folder, until)
    all_of_it = [one for one in (found, *parts) if one.verdict or one.events or one.evidence]
    if not all_of_it:
        why = f" ({'; '.join(found.missing)})" if found.missing else ""
        raise UsageError(
            f"{folder} is a folder without a verdict{why}",
            "It takes the folder of a run, an isolation or a matrix: runs/20261120T174812-a1",
        )
    return _join_parts(folder, all_of_it)


def _check_folder(folder: Path, limit: float) -> None:
    try:
        is_folder = within(limit, folder.is_dir)
    except TimeoutError:
        raise UsageError(f"{folder} does not answer within {limit:.0f} s") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(folder)!r} cannot be read: {error}") from None
    if not is_folder:
        raise UsageError(f"{folder} is no folder", "Name the run folder: runs/20261120T174812-a1")


def _join_parts(folder: Path, parts: Sequence[RecordedRun]) -> RecordedRun:
    """Return the last attempt: the node whose verdict is shown, and then the others."""
    last = max(one.attempt for one in parts)
    first, *others = _shown_first([one for one in parts if one.attempt == last])
    verdicts = [one.verdict for one in (first, *others) if one.verdict]
    told = [sentence for one in (first, *others) for sentence in one.missing]
    earlier = sum(one.attempt < last for one in parts)
    if earlier:
        told.append(f"this is attempt {last}; of earlier ones {earlier} folders were left out")
    verdict = outcomes.of_all(verdicts) if verdicts else {}
    return replace(first, folder=folder, verdict=verdict, nodes=tuple(others), missing=tuple(told))


def _shown_first(parts: Sequence[RecordedRun]) -> list[RecordedRun]:
    having = [one for one in parts if one.verdict]
    if not having:
        return [*parts]
    chosen = having[outcomes.shown([one.verdict for one in having])]
    return [chosen, *(one for one in parts if one is not chosen)]


def _read_parts(folder: Path, until: float, named: str = "", attempt: int = 0) -> list[RecordedRun]:
    """Return what lies in the folders of nodes and attempts below `folder`."""
    missing: list[str] = []
    found: list[RecordedRun] = []
    for name in FolderFiles(folder, until, missing).names():
        inside = folder / name
        if not outcomes.is_part(name) or len(found) >= MOST_NODES or inside.is_symlink():
            continue
        kind, _, which = name.partition("-")
        number = int(which) if kind == "attempt" else attempt
        found.append(replace(_read_folder(inside, until, f"{named}{name}/"), attempt=number))
        if kind == "node":
            found += _read_parts(inside, until, f"{named}{name}/", number)
    return found


def _read_folder(folder: Path, until: float, named: str) -> RecordedRun:
    missing: list[str] = []
    files = FolderFiles(folder, until, missing, named)
    for kind, name in ANSWER_FILES.items():
        answer = _read_json(files, name)
        if isinstance(answer, dict):
            trials = fit_trials(kind, answer, missing)
            return RecordedRun(
                folder, kind=kind, trials=trials, answer=answer, missing=tuple(missing)
            )
    data = _read_json(files, "verdict.json")
    verdict = {} if data is None else fit_verdict(data, missing)
    evidence = _read_json(files, "evidence.json")
    stacks = _read_stacks(files)
    return RecordedRun(
        folder,
        verdict=verdict,
        events=read_events(files),
        evidence=evidence if isinstance(evidence, dict) else None,
        environment=_read_environment(files),
        merged=stacks.pop("merged.txt", ""),
        stacks=stacks,
        missing=tuple(missing),
    )


def _read_json(files: FolderFiles, name: str) -> Any:
    """Return what a file holds; None if there is none, or it is no JSON."""
    data = files.whole(name, MOST_BYTES[name])
    if data is None:
        return None
    try:
        return decode_json(data)
    except ValueError as error:
        files.say(f"{name} is no JSON: {str(error)[:200]}")
    return None


def _read_environment(files: FolderFiles) -> Mapping[str, Any] | None:
    data = _read_json(files, "environment.json")
    if data is None:
        return None
    wrong: list[str] = []
    found: dict[str, Any] = fit_shape(_ENVIRONMENT, data, "", wrong)
    if wrong:
        files.say(f"environment.json: {len(wrong)} values are of another kind, or were cut")
    found["ranks"] = {n: them for n, them in found["ranks"].items() if parse_rank(n) is not None}
    return found


def _read_stacks(files: FolderFiles) -> dict[str, str]:
    names = [name for name in files.names("stacks") if not name.startswith(".")]
    read = files.heads("stacks", names[:MOST_STACKS], MOST_BYTES["stack"], MOST_BYTES["stacks"])
    if len(read) < len(names):
        files.say(f"stacks: {len(names) - len(read)} of {len(names)} files were left out")
    if long := sum(len(data) >= MOST_BYTES["stack"] for data in read.values()):
        files.say(
            f"stacks: of {long} files the first {format_bytes(MOST_BYTES['stack'])} were read"
        )
    return {
        name.encode("utf-8", "replace").decode("utf-8"): data.decode("utf-8", "replace")
        for name, data in read.items()
    }


def read_rank_facts(run: RecordedRun) -> tuple[RankFacts, ...]:
    """Return what was known of each rank of all nodes when the verdict was made, by rank; without
    those of which the file says what cannot be.
    """
    told = [data for part in run.everywhere for data in list_field(part.evidence, "ranks")]
    found = [one for data in told if (one := _read_facts(data))]
    return tuple(sorted(found, key=lambda one: one.rank))


def _read_facts(data: Any) -> RankFacts | None:
    try:
        found: RankFacts = reader_for(RankFacts)(data)
    except (TypeError, ValueError, OverflowError):
        return None
    return replace(found, looks=tuple(sorted(found.looks, key=lambda look: look.at)))
