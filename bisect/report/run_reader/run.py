"""A run folder as one object (of a watched job, of `attach`, of an isolation, of a matrix), the
starts of the last two, and the facts on ranks that its evidence.json was written from.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from ...base import outcomes
from ...base.deadline import within
from ...base.errors import UsageError
from ...base.events import Event
from ...base.identity import parse_rank
from ...base.json_codec import Misfit, fit_json, from_json, to_json
from ...base.lazy_dataclass import dataclass
from ...base.node_record import NodeRecord
from ...base.rank_facts import RankFacts
from ...base.verdict_facts import Trial, Verdict
from ...base.words import format_bytes, format_count
from ...collect.nodes import JointJudgement
from ...search.cells import RecordedCell, RecordedMatrix
from ...search.isolation import Isolation, format_setting
from .run_files import (
    Evidence,
    FolderFiles,
    JobEnvironment,
    NodeFiles,
    change_texts,
    decode_json,
    judge_node_files,
    make_evidence,
    read_events,
    read_evidence,
    read_verdict,
)

TRIALS_FOLDER = "trials"  # the folder of an isolation's starts
FAILED_RESULTS = ("hang", "crash", "slow", "other", "killed")  # results of starts
MOST_REPORTED = 40  # starts of one isolation or matrix that have reports of their own


@dataclass(frozen=True)
class RecordedTrial:
    """One start."""

    number: int
    name: str  # of a cell; of a trial its setting in words
    settings: Mapping[str, str]  # values by toggle
    result: str  # "pass", "hang", "other"; of a cell "ok", "hang", ...; "" if it was not run
    where: str  # where it hung, or how it ended otherwise
    seconds: float | None
    link: str  # its run folder, relative to the folder of all; "" if it does not lie in there


def list_trials(answer: Isolation | RecordedMatrix) -> tuple[RecordedTrial, ...]:
    """Return the starts of it."""
    if isinstance(answer, Isolation):
        return tuple(map(_of_trial, answer.trials))
    return tuple(map(_of_cell, answer.cells))


def _of_trial(one: Trial) -> RecordedTrial:
    return RecordedTrial(
        number=one.number,
        name=format_setting(one.setting),
        settings=one.setting,
        result=one.result,
        where=one.why,
        seconds=one.seconds,
        link=_link(one.run_dir),
    )


def _of_cell(one: RecordedCell) -> RecordedTrial:
    return RecordedTrial(
        number=one.number,
        name=one.name or format_setting(one.setting),
        settings=one.setting,
        result=one.result or "",
        where=one.where,
        seconds=one.seconds,
        link=_link(one.run_dir or ""),
    )


def _link(run_dir: str) -> str:
    """Return where a trial's folder lies in the folder of all, which may have been moved since:
    03-one-worker of a matrix, trials/03 of an isolation.
    """
    path = PurePosixPath(run_dir)
    if path.name in ("", ".", "..") or "\0" in path.name:
        return ""
    return f"{TRIALS_FOLDER}/{path.name}" if path.parent.name == TRIALS_FOLDER else path.name


def trials_with_reports(trials: Sequence[RecordedTrial]) -> list[RecordedTrial]:
    """Return the starts that have reports of their own: those that went wrong, the first
    MOST_REPORTED of them.
    """
    wrong = [trial for trial in trials if trial.link and trial.result in FAILED_RESULTS]
    return wrong[:MOST_REPORTED]


READ_LIMIT = 30.0  # seconds for all of it
_MIB = 1 << 20
MOST_BYTES = {  # bytes
    "verdict.json": 4 * _MIB,
    "evidence.json": 128 * _MIB,
    "environment.json": 16 * _MIB,
    "node.json": 16 * _MIB,
    "isolation.json": 64 * _MIB,
    "matrix.json": 64 * _MIB,
    "stack": 1 * _MIB,
    "stacks": 48 * _MIB,  # all of them together
}
MOST_STACKS = 8192
MOST_NODES = 1024
LONGEST_TEXT = 16_384  # characters of a text in a file that is no evidence
_CUT = " ... (cut)"
_ANSWERS: Mapping[str, type[Isolation | RecordedMatrix]] = {
    "isolation": Isolation,
    "matrix": RecordedMatrix,
}


@dataclass(frozen=True)
class RecordedRun:
    """What a run folder holds. Nothing in it is trusted: texts may hold anything."""

    folder: Path  # as it was named
    kind: str = "run"  # or "isolation", "matrix"
    verdict: Verdict | None = None
    events: tuple[Event, ...] = ()  # by when they happened
    evidence: Mapping[str, Any] | None = None  # as it is: `facts` is what it says
    environment: JobEnvironment | None = None
    record: NodeRecord | None = None  # node.json
    stacks: Mapping[str, str] = field(default_factory=dict)  # by file name, but for merged.txt
    merged: str = ""  # stacks/merged.txt
    nodes: tuple[RecordedRun, ...] = ()  # the same of the other nodes
    trials: tuple[RecordedTrial, ...] = ()
    answer: Isolation | RecordedMatrix | None = None  # None too if it cannot be read whole
    attempt: int = 0
    missing: tuple[str, ...] = ()  # sentences: what could not be read, or only in part

    @property
    def outcome(self) -> str:
        """Return the verdict's outcome, "" without one."""
        return self.verdict.outcome if self.verdict else ""

    @property
    def world_size(self) -> int:
        """Return how many ranks the job has, as far as that is known."""
        return self.verdict.world_size if self.verdict else 0

    @cached_property
    def facts(self) -> Evidence:
        """What the evidence says."""
        return read_evidence(self.evidence or {})

    @property
    def everywhere(self) -> tuple[RecordedRun, ...]:
        """Return this node's and those of all others."""
        return (self, *self.nodes)


def read_run(folder: Path | str, limit: float = READ_LIMIT) -> RecordedRun:
    """Return what a run folder holds, as far as it can be read within `limit` seconds. Of a job
    that was started again after a failure it is the last attempt.

    Raises UsageError if there is no such folder, or nothing of ours in it.
    """
    found = _read_everything(Path(folder), limit)
    return _join_parts(Path(folder), found) if found[0].kind == "run" else found[0]


def read_nodes(folders: Sequence[Path | str], limit: float = READ_LIMIT) -> RecordedRun:
    """Return what run folders hold as one run: a node's each, where these share no disk. A folder
    in which nothing can be read yet, or any more, is left out with a sentence in `missing`, if
    others have something.

    Raises UsageError if one is no folder of a run, or if none has anything.
    """
    found: list[RecordedRun] = []
    empty: list[NothingRecorded] = []
    for folder in folders:
        try:
            parts = _read_everything(Path(folder), limit)
        except NothingRecorded as error:
            empty.append(error)
            continue
        if parts[0].kind != "run":
            raise UsageError(f"{folder} is the folder of an {parts[0].kind}, not of one run")
        found += parts
    if not found:
        raise empty[0]
    joined = _join_parts(Path(folders[0]), found)
    left_out = (f"{error}: nothing is known of its node" for error in empty)
    return replace(joined, missing=(*joined.missing, *left_out))


class NothingRecorded(UsageError):
    """A run folder in which nothing can be read: its node ended first, or has judged nothing."""


def _read_everything(folder: Path, limit: float) -> list[RecordedRun]:
    """Return what a run folder holds, each node and attempt by itself."""
    until = time.monotonic() + limit
    _check_folder(folder, limit)
    found = _read_folder(folder, until, "")
    if found.kind != "run":
        return [found]
    parts = [found, *_read_parts(folder, until)]
    all_of_it = [one for one in parts if one.verdict or one.events or one.evidence]
    if not all_of_it:
        why = f" ({'; '.join(found.missing)})" if found.missing else ""
        raise NothingRecorded(
            f"{folder} is a folder without a verdict{why}",
            "It takes the folder of a run, an isolation or a matrix: runs/20261120T174812-a1",
        )
    return all_of_it


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
    joint = _judge_together([first, *others])
    if joint is not None:
        first, others = _share_evidence(first, others, joint)
    verdicts = [one.verdict for one in (first, *others) if one.verdict]
    sentences = [sentence for one in (first, *others) for sentence in one.missing]
    earlier = sum(one.attempt < last for one in parts)
    if earlier:
        sentences.append(f"this is attempt {last}; of earlier ones {earlier} folders were left out")
    verdict = outcomes.of_all(verdicts) if verdicts else None
    verdict = joint.verdict if joint is not None else verdict
    return replace(
        first, folder=folder, verdict=verdict, nodes=tuple(others), missing=tuple(sentences)
    )


def _judge_together(parts: Sequence[RecordedRun]) -> JointJudgement | None:
    return judge_node_files(
        [
            NodeFiles(one.verdict, one.record, read_rank_facts(one))
            for one in sorted(parts, key=lambda one: one.folder)
        ]
    )


def _share_evidence(
    first: RecordedRun, others: Sequence[RecordedRun], joint: JointJudgement
) -> tuple[RecordedRun, list[RecordedRun]]:
    """Return the nodes; the first has what is known of all ranks, on one clock, and the graph that
    the verdict on all rests on.
    """
    evidence = to_json(make_evidence(joint.ranks, joint.graph, first.facts.machine))
    machines = [{"machine": to_json(one.facts.machine)} for one in others]
    return replace(first, evidence=evidence), [
        replace(one, evidence=machine) for one, machine in zip(others, machines, strict=True)
    ]


def _shown_first(parts: Sequence[RecordedRun]) -> list[RecordedRun]:
    having = [(one, one.verdict) for one in parts if one.verdict]
    if not having:
        return [*parts]
    chosen, _ = having[outcomes.shown([verdict for _, verdict in having])]
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
    for kind, of_kind in _ANSWERS.items():
        saved = _read_json(files, f"{kind}.json", LONGEST_TEXT)
        if isinstance(saved, dict):
            answer, wrong = fit_json(of_kind, saved)
            if wrong:
                files.say(f"{kind}.json: {wrong}")
            return RecordedRun(
                folder,
                kind=kind,
                trials=list_trials(answer),
                answer=None if wrong else answer,
                missing=tuple(missing),
            )
    data = _read_json(files, "verdict.json", LONGEST_TEXT)
    verdict, wrong = (None, "") if data is None else read_verdict(data)
    if wrong:
        files.say(wrong)
    evidence = _read_json(files, "evidence.json")
    stacks = _read_stacks(files)
    return RecordedRun(
        folder,
        verdict=verdict,
        events=read_events(files),
        evidence=evidence if isinstance(evidence, dict) else None,
        environment=_read_environment(files),
        record=_read_record(files),
        merged=stacks.pop("merged.txt", ""),
        stacks=stacks,
        missing=tuple(missing),
    )


def _read_json(files: FolderFiles, name: str, longest: int | None = None) -> Any:
    """Return what a file holds, texts of it cut to `longest` characters; None if there is none, or
    it is no JSON.
    """
    data = files.whole(name, MOST_BYTES[name])
    if data is None:
        return None
    try:
        found = decode_json(data)
    except ValueError as error:
        files.say(f"{name} is no JSON: {str(error)[:200]}")
        return None
    if longest is None or len(data) <= longest:
        return found
    cut, found = _cut_texts(found, longest)
    if cut:
        files.say(f"{name}: {format_count(cut, 'text')} cut after {longest:,} characters")
    return found


def _cut_texts(data: Any, longest: int) -> tuple[int, Any]:
    """Return how many texts are longer, and the same without what they have more."""
    cut: list[str] = []

    def shorten(text: str) -> str:
        if len(text) <= longest:
            return text
        cut.append(text)
        return text[:longest] + _CUT

    found = change_texts(data, shorten)
    return len(cut), found


def _read_environment(files: FolderFiles) -> JobEnvironment | None:
    data = _read_json(files, "environment.json", LONGEST_TEXT)
    if data is None:
        return None
    found, wrong = fit_json(JobEnvironment, data)
    if wrong:
        files.say(f"environment.json: {wrong}")
    ranks = {name: them for name, them in found.ranks.items() if parse_rank(name) is not None}
    return replace(found, ranks=ranks)


def _read_record(files: FolderFiles) -> NodeRecord | None:
    data = _read_json(files, "node.json", LONGEST_TEXT)
    if data is None:
        return None
    try:
        return from_json(NodeRecord, data)
    except Misfit as error:
        files.say(f"node.json: {error}")
        return None


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
    found = [
        replace(one, looks=tuple(sorted(one.looks, key=lambda look: look.at)))
        for part in run.everywhere
        for one in part.facts.ranks
    ]
    return tuple(sorted(found, key=lambda one: one.rank))
