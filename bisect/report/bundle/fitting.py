"""What fits: the most useful files whole, then parts of the others."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .allowed import Form

MOST = 5_000_000  # bytes of the .zip: what issue trackers and mail take
_FOR_THE_MANIFEST = 150_000
_HEADERS = 160  # bytes of a file's two entries in the .zip, beside its name
_LEAST = 2000  # characters of a part that is still of use
_LEVEL = 9


@dataclass(frozen=True)
class File:
    """A file as it stands in the bundle."""

    name: str
    rank: int
    form: Form
    text: str
    size: int  # of what it was made of, bytes
    cut: str = ""  # a sentence: what of it was cut
    replaced: Mapping[str, int] | None = (
        None  # by kind; None: it was made of what had been redacted
    )


def fitted(files: Iterable[File], most: int = MOST) -> tuple[list[File], list[File]]:
    """Return the files that together take `most` bytes in a .zip, cut as needed, and what does not
    fit; both in order of use.
    """
    left = most - _FOR_THE_MANIFEST
    inside: list[File] = []
    outside: list[File] = []
    for file in sorted(files, key=lambda one: (one.rank, one.name)):
        for part in _parts(file):
            needed = _needed(part)
            if needed <= left:
                left -= needed
                inside.append(part)
                break
        else:
            outside.append(file)
    return inside, outside


def _needed(file: File) -> int:
    data = file.text.encode("utf-8", "replace")
    return len(zlib.compress(data, _LEVEL)) + 2 * len(file.name.encode()) + _HEADERS


def _parts(file: File) -> Iterator[File]:
    """Yield the file, then ever smaller parts of it that are whole by themselves."""
    yield file
    if file.form is Form.JSON:
        if (short := _last_looks(file.text)) is not None:
            yield replace(file, text=short, cut="only the last look at each process is kept")
        return
    text = file.text
    while len(text) > 2 * _LEAST:
        text = _half(text, file.form)
        kept = "begins" if file.form is Form.TEXT else "ends"
        yield replace(
            file, text=text, cut=f"{len(text):,} of {len(file.text):,} characters: how it {kept}"
        )


def _half(text: str, form: Form) -> str:
    """Return the better half of a text, in whole lines if it has lines."""
    middle = len(text) // 2
    if form is Form.TEXT:
        return text[: text.rfind("\n", 0, middle) + 1 or middle]
    return text[text.find("\n", middle, -1) + 1 or middle :]


def _last_looks(text: str) -> str | None:
    """Return evidence.json with one look a process; None if it is something else."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):  # a report in HTML; or it was no JSON from the beginning
        return None
    if not isinstance(data, dict) or not isinstance(data.get("ranks"), list):
        return None
    for process in _with_looks(data["ranks"]):
        process["looks"] = process["looks"][-1:]
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _with_looks(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("looks"), list):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _with_looks(item)
