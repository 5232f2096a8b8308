"""All secrets in a text, however they are known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...rank.secret_shapes import shapes_in
from .assigned import assigned_in
from .headers import headers_in, urls_in
from .marks import kind_in
from .span import Span

# AWS's secret key has no mark of its own: 40 characters of base64 near the key that it belongs to.
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=_.-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_.-])")
_NEAR = 200  # characters
# What a value that was cut short ends with.
_CUT = re.compile(r"([^\s\"'=:,;@]{8,})(?:\.\.\.|…)")


def secrets_in(text: str, known: Mapping[str, str]) -> Iterator[Span]:
    """Yield the secrets in `text`; those of `known` (value: mark) wherever they stand."""
    for start, end, kind in shapes_in(text):
        yield Span(start, end, kind)
        if kind == "AWS access key":
            for found in _AWS_SECRET.finditer(text, max(0, start - _NEAR), end + _NEAR):
                if any(map(str.isdigit, found[0])) and not found[0].islower():
                    yield Span(*found.span(), "AWS secret key", by_place=True)
    yield from assigned_in(text)
    yield from headers_in(text)
    yield from urls_in(text)
    yield from _known_in(text, known)


def spans_lines(text: str) -> bool:
    """Return whether a secret in `text` may be longer than a line, or stand in the next one."""
    return "PRIVATE KEY" in text or "  value:" in text or ("machine" in text and "password" in text)


def kind_of(secret: str) -> str:
    """Return the kind of what has the shape of a secret as a whole, "" if it has none."""
    whole = (0, len(secret))
    return next((kind for *place, kind in shapes_in(secret) if tuple(place) == whole), "")


def _known_in(text: str, known: Mapping[str, str]) -> Iterator[Span]:
    for value, mark in known.items():
        at = text.find(value)
        while at >= 0:
            yield Span(at, at + len(value), kind_in(mark))
            at = text.find(value, at + len(value))
    if known and ("..." in text or "…" in text):
        for found in _CUT.finditer(text):
            if any(value.startswith(found[1]) for value in known):
                yield Span(*found.span(1), "secret")
