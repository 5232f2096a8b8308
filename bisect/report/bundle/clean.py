"""The files of a bundle as they may leave: redacted, and without what acts on a terminal."""

from __future__ import annotations

import json
import re
from typing import Any

from ..redaction import Redactor
from .allowed import Form
from .contents import Source

_READ_BY_PEOPLE = 1 << 20  # bytes; what is larger is written in one line, which is faster
# What acts on a terminal or turns the direction of writing around.
_ACTS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f‎‏\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def objects(source: Source) -> list[Any]:
    """Return what a file holds: objects of JSON, or texts where it holds none."""
    text = source.data.decode("utf-8", "replace")
    if source.rule.form is Form.JSON:
        return [_parsed(text)]
    if source.rule.form is Form.LINES:
        return [_parsed(line) for line in text.splitlines() if line]
    return [text.replace("\r\n", "\n").replace("\r", "\n")]


def cleaned(source: Source, held: list[Any], redactor: Redactor) -> str:
    """Return what is written into the bundle of a file that holds `held`."""
    if source.rule.form is Form.JSON:
        return _written(held[0], redactor, 2 if source.size < _READ_BY_PEOPLE else None)
    if source.rule.form is Form.LINES:
        return "".join(_written(one, redactor, None) for one in held)
    return harmless(redactor.text(held[0]))


def harmless(text: str) -> str:
    """Return `text` with control characters as the escapes of JSON, but for line break and tab."""
    return _ACTS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _written(value: Any, redactor: Redactor, indent: int | None) -> str:
    if isinstance(value, str):  # no JSON, or only a text
        return harmless(redactor.text(value)).rstrip("\n") + "\n"
    try:
        redacted = redactor.json(value)
        return harmless(json.dumps(redacted, indent=indent, ensure_ascii=False)) + "\n"
    except RecursionError:
        return json.dumps("it is nested too deeply") + "\n"
