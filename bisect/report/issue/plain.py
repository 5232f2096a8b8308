"""Anybody's text in Markdown, as text: it ends no block, makes no tag, mentions nobody."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

LONGEST = 500  # characters of a line
_BACKTICKS = re.compile(r"`+")
_SPACES = {"\t": "    "}


def visible(line: str, most: int = LONGEST) -> str:
    """Return one line with control characters, and those that turn the direction of writing, as
    escapes; without what goes beyond `most` characters.
    """
    shown = "".join(_SPACES.get(c, c) if c.isprintable() else _escape(c) for c in line[: most + 1])
    if len(line) <= most:
        return shown
    return f"{shown[:most]} ... ({len(line) - most:,} more characters)"


def _escape(character: str) -> str:
    return _SPACES.get(character) or character.encode("unicode_escape").decode()


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, as files have them: at line feeds alone."""
    return text.replace("\r\n", "\n").rstrip("\n").split("\n") if text.strip() else []


def fenced(lines: Iterable[str], language: str = "text") -> str:
    """Return lines as a block of code, whatever they hold."""
    shown = [visible(line) for line in lines]
    longest = max((len(run) for line in shown for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *shown, fence])


def code(text: str, most: int = LONGEST) -> str:
    """Return a text as code within a line, also in a cell of a table; "" for none."""
    shown = " ".join(visible(text, most).split())
    if not shown:
        return ""
    if "|" in shown:  # it would end a cell; by its number it has no meaning
        return f"<code>{''.join(map(_by_number, shown))}</code>"
    longest = max((len(run) for run in _BACKTICKS.findall(shown)), default=0)
    ticks = "`" * (longest + 1)
    space = " " if shown[0] == "`" or shown[-1] == "`" else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


def _by_number(character: str) -> str:
    return character if character.isalnum() or character == " " else f"&#{ord(character)};"


def as_html(text: str, most: int = LONGEST) -> str:
    """Return a text as code within our own HTML, where Markdown has no meaning."""
    return f"<code>{html.escape(' '.join(visible(text, most).split()))}</code>"


def folded(summary: str, body: str) -> str:
    """Return a block that is folded until one opens it; `summary`: our own words and `as_html`."""
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
