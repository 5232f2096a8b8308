"""Texts in columns under one another, as wide as there is room for, with colours."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from .lazy_dataclass import dataclass

GAP = 2  # columns of a terminal between two of a table
_CUT = "…"
_COLOURS = {
    **{"bold": "1", "dim": "2", "bold red": "1;31"},
    **{"red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"},
}
Cell = tuple[str, str]  # a text of one line, and its style: a name of _COLOURS, or ""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str = ""
    right: bool = False  # numbers
    most: int | None = None  # columns of a terminal; None: as many as its widest text has
    is_whole: bool = False  # not cut as long as another can be


def in_columns(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    width: int | None = None,
    head: str = "",
) -> list[str]:
    """Return the names of the columns, in the style `head`, and the rows; none wider than `width`,
    if that is given: what has no room ends in an ellipsis.
    """
    table = [[(one.name, head) for one in columns], *rows]
    widths = _widths(columns, table, width)
    return [_format_row(columns, widths, row) for row in table]


def styled(text: str, style: str) -> str:
    """Return `text` in a style, which ends with it."""
    return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if style and text else text


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def fitted(text: str, width: int) -> str:
    """Return a text that takes `width` columns at most: cut, if need be, with an ellipsis."""
    if text_width(text) <= width:
        return text
    kept, left = 0, width - 1
    for character in text:
        left -= _character_width(character)
        if left < 0:
            break
        kept += 1
    return text[:kept] + _CUT if width > 0 else ""


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    # What this Python does not know yet may be a picture of two columns; half a flag is one in most
    # terminals.
    unknown = unicodedata.category(character) == "Cn" or "\U0001f1e6" <= character <= "\U0001f1ff"
    return 2 if unknown or unicodedata.east_asian_width(character) in "WF" else 1


def _widths(
    columns: Sequence[Column], table: Sequence[Sequence[Cell]], width: int | None
) -> list[int]:
    widths = [max(text_width(row[place][0]) for row in table) for place in range(len(columns))]
    widths = [min(has, one.most or has) for has, one in zip(widths, columns, strict=True)]
    if width is None:
        return widths
    room = max(width - GAP * (len(columns) - 1), 0)
    widths = [min(has, room) for has in widths]
    while sum(widths) > room:
        cut = [n for n, one in enumerate(columns) if not one.is_whole and widths[n] > 1]
        place = max(cut or range(len(columns)), key=lambda n: widths[n])
        widths[place] -= 1
    return widths


def _format_row(columns: Sequence[Column], widths: Sequence[int], row: Sequence[Cell]) -> str:
    parts = []
    for column, width, (text, style) in zip(columns, widths, row, strict=True):
        shown = fitted(text, width)
        space = " " * (width - text_width(shown))
        parts += [space, styled(shown, style)] if column.right else [styled(shown, style), space]
        parts.append(" " * GAP)
    return "".join(parts).rstrip()
