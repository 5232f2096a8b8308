"""The files of a run folder: what they hold, and how they are read.

verdict.json, evidence.json, environment.json and node.json (`NodeRecord`) are types; those of an
isolation and of a matrix are in `search`: `Isolation` and `RecordedMatrix`. A folder may belong to
anyone: no file is read that is too large, none is waited for too long. events.jsonl was appended to
and may end in the middle of a line. Of a file of stacks: whose it is, its threads, and its kind.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, get_args

from ...base.deadline import within
from ...base.events import Event, decode
from ...base.identity import RankId, UnknownRank
from ...base.json_codec import Misfit, fit_json, from_json
from ...base.lazy_dataclass import dataclass
from ...base.node_record import NodeRecord
from ...base.rank_facts import MachineFacts, RankFacts, fill_in_same_looks
from ...base.typed_messages import is_number, is_rank
from ...base.verdict_facts import Edge, Outcome, Verdict
from ...base.words import format_bytes
from ...collect.nodes import JointJudgement, RecordedNode, judge_recorded_nodes
from ...diagnosis.wait_graph import Node, WaitGraph


@dataclass(frozen=True)
class RecordedGraph:
    """Who waits for whom."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What a verdict rests on: every look at every process, the whole graph, the machine."""

    ranks: tuple[RankFacts, ...] = ()
    graph: RecordedGraph = field(default_factory=RecordedGraph)
    machine: MachineFacts = field(default_factory=MachineFacts)


@dataclass(frozen=True)
class JobEnvironment:
    """What the ranks of a node ran in."""

    versions: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    processors: int | None = None
    kernel: str = ""
    ranks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # the variables of each


def read_verdict(data: Any) -> tuple[Verdict | None, str]:
    """Return the verdict that `data`, of verdict.json, is, None if it is none; and in a sentence
    what is wrong with it, "" if nothing is.
    """
    if not isinstance(data, dict):
        return None, "verdict.json is no verdict: it holds no object"
    if data.get("schema") not in (1, 2):
        return None, f"verdict.json has schema {data.get('schema')!r:.40}, and 1 and 2 can be read"
    if data.get("outcome") not in get_args(Outcome):
        return None, f"verdict.json is no verdict: its outcome is {data.get('outcome')!r:.40}"
    verdict, wrong = fit_json(Verdict, data)
    return verdict, f"verdict.json: {wrong}" if wrong else ""


def make_evidence(ranks: Sequence[RankFacts], graph: WaitGraph, machine: MachineFacts) -> Evidence:
    """Return what is written of a verdict's grounds."""
    drawn = RecordedGraph(tuple(graph.nodes.values()), graph.edges)
    return Evidence(tuple(ranks), drawn, machine)


def read_evidence(data: Any) -> Evidence:
    """Return what `data`, of evidence.json, says; without the ranks of which it says what cannot
    be.
    """
    found = _read_evidence(data)
    return replace(found, ranks=fill_in_same_looks(found.ranks))


def _read_evidence(data: Any) -> Evidence:
    try:
        return from_json(Evidence, data)
    except Misfit:
        held = data if isinstance(data, dict) else {}
        ranks_read = held.get("ranks")
        ranks = (
            [one for one in ranks_read if _are_facts(one)] if isinstance(ranks_read, list) else []
        )
        return fit_json(Evidence, {**held, "ranks": ranks})[0]


MOST_WHOLE = 64  # ranks of a job whose looks are all kept
MOST_KINDS = 50  # ranks that stand in different places, each of which stands for others


def leave_out_same_looks(
    ranks: Sequence[RankFacts], named: Collection[RankId]
) -> tuple[RankFacts, ...]:
    """Return the ranks of a job of more than MOST_WHOLE without the looks that show what those of
    another rank show: the same stacks, and the same system calls of the main threads. A rank that
    is `named` keeps its own, and so does one of each kind; past MOST_KINDS the last look alone.
    """
    if len(ranks) <= MOST_WHOLE:
        return tuple(ranks)
    known: dict[int, int] = {}
    of_kind: dict[Any, RankId] = {}
    found = []
    for facts in ranks:
        kind = _kind_of_rank(facts, known)
        if facts.rank in named or not facts.looks:
            of_kind.setdefault(kind, facts.rank)
        elif kind in of_kind:
            facts = replace(facts, looks=(), children=(), same_looks_as=of_kind[kind])
        elif len(of_kind) < MOST_KINDS:
            of_kind[kind] = facts.rank
        else:
            facts = replace(facts, looks=facts.looks[-1:], children=())
        found.append(facts)
    return tuple(found)


def _kind_of_rank(facts: RankFacts, known: dict[int, int]) -> Any:
    """Return what is equal for ranks in the same places. `known` has the hash of each stack, by the
    id of the object: ranks share them.
    """
    kinds = []
    for looks in (facts.looks, *facts.children):
        last = looks[-1] if looks else None
        if last is None:
            continue
        stacks = set()
        for frames in (thread.frames for thread in last.threads):
            if id(frames) not in known:
                known[id(frames)] = hash(frames)
            stacks.add(known[id(frames)])
        call = last.kernel[0].syscall if last.kernel else None
        kinds.append((last.name, call.name if call else "", *sorted(stacks)))
    return tuple(sorted(kinds))


def _are_facts(data: Any) -> bool:
    try:
        from_json(RankFacts, data)
    except Misfit:
        return False
    return True


FILE_LIMIT = 5.0  # seconds for one file
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # of an escape, which need not have its other half
T = TypeVar("T")


class FolderFiles:
    """Reads the files of a folder; what cannot be read is a sentence in `missing`."""

    def __init__(self, folder: Path, until: float, missing: list[str], named: str = "") -> None:
        """`until`: when all has to be read, monotonic; `named`: what stands before each name."""
        self.folder = folder
        self.missing = missing
        self._until = until
        self._named = named

    def head(self, name: str, most: int) -> bytes | None:
        """Return the first `most` bytes of a file; None if there is none, or it cannot be read."""
        found = self._tried(name, lambda: _read_first_and_last(self.folder / name, most, 0))
        if found is None:
            return None
        data, size = found
        if size > most:
            self.say(f"{name} has {format_bytes(size)}: the first {format_bytes(most)} were read")
        return data

    def whole(self, name: str, most: int) -> bytes | None:
        """Return a file; None if there is none, it cannot be read, or it is larger than `most`."""
        found = self._tried(name, lambda: _read_first_and_last(self.folder / name, most, 0))
        if found is None:
            return None
        data, size = found
        if size > most:
            has, at_most = format_bytes(size), format_bytes(most)
            self.say(f"{name} was not read: it has {has}, and {at_most} is the most")
            return None
        return data

    def heads(self, below: str, names: Sequence[str], each: int, together: int) -> dict[str, bytes]:
        """Return the first `each` bytes of the files of those names in the folder `below`, by name,
        until they make `together` bytes. In one go: a thousand files are a thousand threads else.
        """
        found: dict[str, bytes] = {}

        def read() -> None:
            left = together
            for name in names:
                if left <= 0 or time.monotonic() > self._until:
                    break
                with contextlib.suppress(OSError):
                    found[name] = _read_first_and_last(
                        self.folder / below / name, min(each, left), 0
                    )[0]
                    left -= len(found[name])

        self._tried(below, read)
        return dict(found)  # as far as it came: the thread may still be at it

    def both_ends(self, name: str, first: int, last: int) -> tuple[bytes, bytes] | None:
        """Return how a file begins and, if it is larger, how it ends; None as for `head`."""
        found = self._tried(name, lambda: _read_first_and_last(self.folder / name, first, last))
        if found is None:
            return None
        data, size = found
        if size > first + last:
            self.say(f"{name} has {format_bytes(size)}: what is in the middle was left out")
        return data[:first], data[first:]

    def names(self, below: str = "") -> list[str]:
        """Return the names in the folder, or in one below it that is no link; sorted."""

        def listed() -> list[str]:
            folder = self.folder / below
            if below and folder.is_symlink():
                raise OSError(0, "a link, which is not followed")
            return sorted(os.fsdecode(entry) for entry in os.listdir(os.fsencode(folder)))

        return self._tried(below or "the folder", listed) or []

    def say(self, sentence: str) -> None:
        """Tell what could not be read."""
        self.missing.append(self._named + sentence)

    def _tried(self, name: str, read: Callable[[], T]) -> T | None:
        left = min(FILE_LIMIT, self._until - time.monotonic())
        try:
            return within(max(left, 0.01), read)
        except FileNotFoundError:
            return None
        except TimeoutError:
            self.say(f"{name} could not be read within {max(left, 0.0):.0f} s")
        except (OSError, ValueError) as error:  # ValueError: a null byte in a name
            why = error.strerror if isinstance(error, OSError) else error
            self.say(f"{name} could not be read: {why}")
        return None


def _read_first_and_last(path: Path, first: int, last: int) -> tuple[bytes, int]:
    """Return how a file begins and how it ends, all of it if it is not larger; and its size.

    Raises OSError, also if it is no regular file: links lead elsewhere, and FIFOs block.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise OSError(error.errno, "a link, which is not followed") from None
        raise
    with open(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is no regular file")
        data = file.read(first)
        if found.st_size > first and last:
            file.seek(max(first, found.st_size - last))
            data += file.read(last)
        return data, found.st_size


def decode_json(data: bytes) -> Any:
    """Return what JSON in UTF-8 says, without numbers that are none and halves of characters.

    Raises ValueError if it is no JSON, or nested too deep.
    """
    text = data.decode("utf-8", "replace")
    try:
        found = json.loads(text, parse_constant=lambda _: None, parse_float=_finite)
        return change_texts(found, _replace_surrogates) if _SURROGATE.search(text) else found
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def change_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return what JSON says with each text of it changed, names too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [change_texts(one, change) for one in value]
    if isinstance(value, dict):
        return {change(name): change_texts(one, change) for name, one in value.items()}
    return value


EVENTS_FILE = "events.jsonl"
FIRST, LAST = 48 << 20, 16 << 20  # bytes: of a long run the beginning and the end
LONGEST_EVENT = 1 << 20  # bytes of a line


def read_events(files: FolderFiles) -> tuple[Event, ...]:
    """Return the events by when they happened. What is no event is left out, and counted."""
    found = files.both_ends(EVENTS_FILE, FIRST, LAST)
    if found is None:
        return ()
    first, last = found
    lines = first.splitlines()
    # The last line of a file need not be whole: it may be written this moment.
    cut_short = bool(last) or not first.endswith(b"\n")
    if last:
        lines = [*lines[:-1], *last.splitlines()[1:]]
        cut_short = not last.endswith(b"\n")
    events = [_read_event(line) for line in lines if line.strip()]
    wrong = sum(event is None for event in events)
    wrong -= cut_short and bool(events) and events[-1] is None
    if wrong:
        files.say(f"{EVENTS_FILE}: {wrong} of {len(events)} lines are no events")
    return tuple(sorted((e for e in events if e is not None), key=lambda event: event.at))


def _read_event(line: bytes) -> Event | None:
    if len(line) > LONGEST_EVENT:
        return None
    try:
        event = decode_json(line)
    except ValueError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("t"), str):
        return None
    fits = is_number(event.get("at")) and is_number(event.get("wall", 0))
    fits = fits and is_rank(event.get("rank", 0))
    return decode(event) if fits else None


# As rank_file() names them, of children with name and pid.
_NAME = re.compile(r"rank-(?:(\d{1,8})|pid(\d{1,10})(?:\+([\w.]{1,255}))?)(?:-(.+)-(\d+))?\.txt")
_THREAD = re.compile(r"Thread |Current thread ")
# What no two processes share, and no stack is about.
_OWN = re.compile(r"\b(pid|Process|Thread|time:) \S+|0x[0-9a-f]+|\(\d+\)")
_TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True)
class StackFile:
    """One of them: of a rank, or of a child of a rank."""

    name: str
    text: str
    rank: RankId | None = None  # None: its name tells none
    process: str = ""  # a child's name, "" for a rank
    pid: int | None = None  # a child's

    @property
    def is_of_rank(self) -> bool:
        return self.rank is not None and not self.process

    @property
    def is_traceback(self) -> bool:
        """Return whether it is that of an error that ended the rank."""
        return self.text.startswith(_TRACEBACK)

    @cached_property
    def lines(self) -> list[str]:
        return split_lines(self.text)

    @cached_property
    def _threads(self) -> list[int]:
        """Where threads begin."""
        return [i for i, line in enumerate(self.lines) if _THREAD.match(line)]

    @cached_property
    def main_end(self) -> int:
        """Where the main thread ends: a thread after it begins, or a log."""
        begins = self._threads
        main = next((i for i in begins if "MainThread" in self.lines[i]), min(begins, default=0))
        return begins[1] if len(begins) > 1 and main == begins[0] else len(self.lines)

    @property
    def other_threads(self) -> int:
        """How many threads there are behind the main one."""
        return sum(1 for begin in self._threads if begin >= self.main_end)

    @property
    def innermost(self) -> str:
        """The innermost frame of Python, of the first thread; else the innermost."""
        begin = self._threads[0] if self._threads else len(self.lines)
        inside = self.lines[begin : self.main_end]
        frames = [line.strip() for line in inside if line.startswith("    ")]
        return next((frame for frame in frames if ".py:" in frame), frames[0] if frames else "")

    @cached_property
    def kind(self) -> str:
        """What stacks have in common that are of one kind: their frames."""
        beginnings = ("    ", "no stack", "state:")
        frames = [line for line in self.text.splitlines() if line.startswith(beginnings)]
        return _OWN.sub("", "\n".join(frames))


def read_stack_file(name: str, text: str) -> StackFile:
    """Return a file by its name in stacks/, and what it holds."""
    found = _NAME.fullmatch(name)
    if found is None:
        return StackFile(name, text)
    pid = int(found[5]) if found[5] else None
    rank = int(found[1]) if found[1] else UnknownRank(found[3] or "", int(found[2]))
    return StackFile(name, text, rank, found[4] or "", pid)


def read_stack_files(texts: Mapping[str, str]) -> list[StackFile]:
    """Return the files with the name of a rank or a child: ranks before children, by number.

    `texts`: by the names of the files.
    """
    found = [read_stack_file(name, text) for name, text in texts.items()]
    named = [(bool(one.process), one.rank, one.name, one) for one in found if one.rank is not None]
    return [one for *_, one in sorted(named, key=lambda key: key[:3])]


def split_lines(text: str) -> list[str]:
    """Return the lines of a text, as files have them: at line feeds alone."""
    return text.replace("\r\n", "\n").rstrip("\n").split("\n") if text.strip() else []


@dataclass(frozen=True)
class NodeFiles:
    """What one node has left of one attempt, as far as it could be read."""

    verdict: Verdict | None
    record: NodeRecord | None
    ranks: tuple[RankFacts, ...]


def judge_node_files(files: Sequence[NodeFiles]) -> JointJudgement | None:
    """Return the verdict on the nodes of one attempt together. None where they are to be taken one
    by one: there are not several, or one of them has not told what it takes.
    """
    having = [one for one in files if one.verdict is not None]
    nodes = [
        RecordedNode(one.record, one.ranks, one.verdict)
        for one in having
        if one.record is not None and one.verdict is not None
    ]
    return judge_recorded_nodes(nodes) if len(nodes) == len(having) else None
