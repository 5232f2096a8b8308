"""Any text in Markdown, as text (it ends no block, makes no tag, mentions no user); and
sections of a page that are made to fit into what GitHub takes: the least useful one is cut
first.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from ...base.lazy_dataclass import dataclass

LONGEST_LINE = 500  # characters of a line
_BACKTICKS = re.compile(r"`+")
_SPACES = {"\t": "    "}


def escape_line(line: str, most: int = LONGEST_LINE) -> str:
    """Return one line with control characters, and those that turn the direction of writing, as
    escapes; without what goes beyond `most` characters.
    """
    shown = "".join(_SPACES.get(c, c) if c.isprintable() else _escape(c) for c in line[: most + 1])
    if len(line) <= most:
        return shown
    return f"{shown[:most]} ... ({len(line) - most:,} more characters)"


def _escape(character: str) -> str:
    return _SPACES.get(character) or character.encode("unicode_escape").decode()


def code_block(lines: Iterable[str], language: str = "text") -> str:
    """Return lines as a block of code, whatever they hold."""
    shown = [escape_line(line) for line in lines]
    longest = max((len(run) for line in shown for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *shown, fence])


def inline_code(text: str, most: int = LONGEST_LINE) -> str:
    """Return a text as code within a line, also in a cell of a table; "" for none."""
    shown = " ".join(escape_line(text, most).split())
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


def html_code(text: str, most: int = LONGEST_LINE) -> str:
    """Return a text as code within our own HTML, where Markdown has no meaning."""
    return f"<code>{html.escape(' '.join(escape_line(text, most).split()))}</code>"


def details_block(summary: str, body: str) -> str:
    """Return a block that is folded until one opens it; `summary` is made of our own words and of
    html_code().
    """
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


MOST_CHARACTERS = 65_536  # characters of an issue or a comment
STEP_SUMMARY = 1 << 20  # bytes of the summary of a step in GitHub Actions
_ROOM = 1_500  # characters for what was left out


@dataclass(frozen=True)
class Section:
    """A part of the page. `useful`: the higher the later it is cut; none is cut twice."""

    text: str
    useful: int
    name: str  # what is said where it was cut: "the stack of rank 3 (stacks/rank-3.txt)"
    shorter: str = ""  # what stands instead


def count_characters(text: str) -> int:
    """Return how many characters GitHub may count.

    Its server has been seen to count code points, bytes by four, and browsers send each line break
    as two and count UTF-16: the largest of these is what must fit.
    """
    return len(text.encode("utf-16-le", "replace")) // 2 + text.count("\n")


def fit_sections(
    sections: Sequence[Section], most: int = MOST_CHARACTERS
) -> tuple[str, tuple[str, ...]]:
    """Return the page, and the names of what was cut: of equally useful sections the last first."""
    texts = [section.text for section in sections]
    left_out: list[str] = []
    size = sum(count_characters(text) + 4 for text in texts)  # an empty line after each
    order = sorted(range(len(sections)), key=lambda i: (sections[i].useful, -i))
    for number in order:
        if size <= most - (_ROOM if left_out or size > most else 0):
            break
        section = sections[number]
        size -= count_characters(section.text) - count_characters(section.shorter)
        texts[number] = section.shorter
        left_out.append(section.name)
    return "\n\n".join(text for text in texts if text), tuple(left_out)


@dataclass(frozen=True)
class Masked:
    """How much a redactor found."""

    secrets: int = 0  # different ones
    counts: Mapping[str, int] = field(default_factory=dict)  # places, by kind: "W&B key", ...

    @property
    def words(self) -> str:
        """Return it in words, "" if nothing was masked."""
        if not self.counts:
            return ""
        kinds = ", ".join(f"{kind} {number}×" for kind, number in sorted(self.counts.items()))  # noqa: RUF001  # times
        secrets = f"{self.secrets} secret{'' if self.secrets == 1 else 's'}" if self.secrets else ""
        return f"{secrets} ({kinds})" if secrets else kinds


NOTHING_MASKED = Masked()
