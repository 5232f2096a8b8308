"""Which files of a run folder go into a bundle (`RULES`: the one place to add another), and what is
written of each: redacted, without what acts on a terminal. Links are not followed.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from ..base.deadline import within
from ..base.lazy_dataclass import dataclass
from .redaction import Redactor
from .run_reader.run_files import FolderFiles

_MIB = 1 << 20


class Form(Enum):
    """How a file is read, and so how it is redacted and cut."""

    JSON = "JSON"  # an object
    LINES = "lines of JSON"
    TEXT = "text"
    TAIL = "text, of which the end tells"


@dataclass(frozen=True)
class Rule:
    """Files of one kind. What has the largest `rank` is cut and left out first."""

    path: str  # a regular expression for the whole of it, below the folder of a run
    rank: int
    form: Form
    most: int  # bytes that are read
    is_of_a_trial: bool = False


REPORTS = {"report.md": 0, "report.html": 3, "trace.json": 6}  # their ranks; they are made fresh
RULES = (
    Rule(r"verdict\.json|isolation\.json|matrix\.json", 1, Form.JSON, 16 * _MIB),
    Rule(r"stacks/merged\.txt", 2, Form.TEXT, 4 * _MIB),
    Rule(r"environment\.json|node\.json", 2, Form.JSON, 16 * _MIB),
    Rule(r"stacks/[^/]+\.txt", 4, Form.TEXT, _MIB),
    Rule(r"known-hang\.json", 5, Form.JSON, _MIB),
    Rule(r"events\.jsonl", 7, Form.LINES, 16 * _MIB),
    Rule(r"output\.txt|junit\.xml", 8, Form.TAIL, _MIB // 4),
    Rule(r"evidence\.json", 9, Form.JSON, 64 * _MIB),
    Rule(
        r"logs/.+\.(?:log|txt|out|err|json|jsonl|ya?ml|toml|cfg|ini|csv)",
        10,
        Form.TAIL,
        _MIB // 4,
    ),
)
_OF_A_TRIAL = 20  # is added: the whole comes first
_BELOW = r"(?P<trial>trials/[0-9]{1,6}/)?(?:(?:node-[\w.-]{1,64}|attempt-[0-9]{1,6})/)*"
_COMPILED = tuple((re.compile(rf"{_BELOW}(?:{rule.path})", re.DOTALL), rule) for rule in RULES)


def find_rule(path: str) -> Rule | None:
    """Return the rule for a path below the folder of a run; None if it is not for a bundle."""
    for pattern, rule in _COMPILED:
        if found := pattern.fullmatch(path):
            if found["trial"]:
                return replace(rule, rank=rule.rank + _OF_A_TRIAL, is_of_a_trial=True)
            return rule
    return None


# Reports are made anew, and the lock on a run folder (monitor/copy_run.py) tells nothing.
_NOT_MISSED = (*REPORTS, ".lock")
MOST_FILES = 20_000  # that are looked at
_DEEPEST = 12
_LISTING = 10.0  # seconds


@dataclass(frozen=True)
class Source:
    """A file as it lies in the folder."""

    path: str  # below the folder, with /; a name may hold anything but that
    rule: Rule
    data: bytes  # what was read of it
    size: int  # of all of it, bytes


@dataclass(frozen=True)
class LeftOut:
    """A file that is not in the bundle, and why."""

    path: str
    why: str


def read_contents(folder: Path, limit: float, left_out: list[LeftOut]) -> list[Source]:
    """Return the files of `folder` for a bundle, the most useful first; it takes `limit` seconds
    at most. What is left out is told.
    """
    until = time.monotonic() + limit
    missing: list[str] = []
    files = FolderFiles(folder, until, missing)
    try:
        paths = within(min(_LISTING, limit), lambda: sorted(_list_files(folder, left_out)))
    except TimeoutError:
        left_out.append(LeftOut(".", f"it could not be listed within {_LISTING:.0f} s"))
        return []
    found = []
    for path, size in paths:
        rule = find_rule(path)
        if rule is None:
            if path.rpartition("/")[2] not in _NOT_MISSED:
                left_out.append(LeftOut(path, "it is no file of a run that is known to be of use"))
        elif (data := _read_source(files, path, rule)) is None:
            why = missing[-1] if missing else "it is gone"
            left_out.append(LeftOut(path, why.removeprefix(f"{path} ")))
        else:
            found.append(Source(path, rule, data, max(size, len(data))))
    return sorted(found, key=lambda one: (one.rule.rank, one.path))


def _read_source(files: FolderFiles, path: str, rule: Rule) -> bytes | None:
    if rule.form is Form.JSON:
        return files.whole(path, rule.most)
    if rule.form is Form.TEXT:
        return files.head(path, rule.most)
    first = rule.most // 4 if rule.form is Form.LINES else 0
    ends = files.both_ends(path, max(first, 1), rule.most - max(first, 1))
    if ends is None:
        return None
    begin, end = ends
    if not end or len(begin) + len(end) < rule.most:
        return begin + end
    # What was cut through is no whole line: half a secret would not be known.
    return begin[: begin.rfind(b"\n") + 1] + end[end.find(b"\n") + 1 :]


def _list_files(folder: Path, left_out: list[LeftOut]) -> Iterator[tuple[str, int]]:
    """Yield path and size of each regular file below `folder`."""
    waiting, seen = [("", 0)], 0
    while waiting:
        below, depth = waiting.pop()
        try:
            entries = sorted(os.scandir(folder / below), key=lambda entry: entry.name)
        except OSError as error:
            left_out.append(LeftOut(below or ".", f"it cannot be listed: {error.strerror}"))
            continue
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            seen += 1
            if seen > MOST_FILES:
                left_out.append(LeftOut(below or ".", f"only {MOST_FILES:,} files were looked at"))
                return
            if entry.is_symlink():
                left_out.append(LeftOut(path, "it is a link, which is not followed"))
            elif entry.is_dir(follow_symlinks=False):
                if depth < _DEEPEST:
                    waiting.append((path, depth + 1))
                else:
                    left_out.append(LeftOut(path, "it lies too deep"))
            elif entry.is_file(follow_symlinks=False):
                yield path, entry.stat(follow_symlinks=False).st_size
            else:
                left_out.append(LeftOut(path, "it is no regular file"))


_READ_BY_PEOPLE = 1 << 20  # bytes; what is larger is written in one line, which is faster
# What acts on a terminal or turns the direction of writing around.
_ACTS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f‎‏\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def parse_source(source: Source) -> list[Any]:
    """Return what a file holds: objects of JSON, or texts where it holds none."""
    text = source.data.decode("utf-8", "replace")
    if source.rule.form is Form.JSON:
        return [_parse_json(text)]
    if source.rule.form is Form.LINES:
        return [_parse_json(line) for line in text.splitlines() if line]
    return [text.replace("\r\n", "\n").replace("\r", "\n")]


def redact_source(source: Source, held: list[Any], redactor: Redactor) -> str:
    """Return what is written into the bundle of a file that holds `held`."""
    if source.rule.form is Form.JSON:
        return _write_json(held[0], redactor, 2 if source.size < _READ_BY_PEOPLE else None)
    if source.rule.form is Form.LINES:
        return "".join(_write_json(one, redactor, None) for one in held)
    return escape_controls(redactor.text(held[0]))


def escape_controls(text: str) -> str:
    """Return `text` with control characters as the escapes of JSON, but for line break and tab."""
    return _ACTS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _write_json(value: Any, redactor: Redactor, indent: int | None) -> str:
    if isinstance(value, str):  # no JSON, or only a text
        return escape_controls(redactor.text(value)).rstrip("\n") + "\n"
    try:
        redacted = redactor.json(value)
        return escape_controls(json.dumps(redacted, indent=indent, ensure_ascii=False)) + "\n"
    except RecursionError:
        return json.dumps("it is nested too deeply") + "\n"
