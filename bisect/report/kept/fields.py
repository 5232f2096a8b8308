"""Fields of objects of JSON that may be anybody's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .event_lines import is_rank


def text(data: Mapping[str, Any], name: str) -> str:
    """Return a field that is a text, "" if it is none."""
    value = data.get(name)
    return value if isinstance(value, str) else ""


def whole(data: Mapping[str, Any], name: str) -> int | None:
    """Return a field that is a small whole number, None if it is none."""
    value = data.get(name)
    return value if is_rank(value) else None


def objects(data: object, name: str) -> list[Mapping[str, Any]]:
    """Return the objects of a field that is a list, none if it is none, or `data` no object."""
    found = data.get(name) if isinstance(data, Mapping) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
