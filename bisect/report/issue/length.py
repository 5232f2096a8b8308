"""How long a text may be for GitHub, and making it fit: the least useful goes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST = 65_536  # characters of an issue or a comment
STEP_SUMMARY = 1 << 20  # bytes of the summary of a step in GitHub Actions
_ROOM = 1_500  # characters for what was left out


@dataclass(frozen=True)
class Section:
    """A part of the page. `useful`: the higher the later it is cut; none is cut twice."""

    text: str
    useful: int
    name: str  # what is said where it was cut: "the stack of rank 3 (stacks/rank-3.txt)"
    shorter: str = ""  # what stands instead


def counted(text: str) -> int:
    """Return how many characters GitHub may count.

    Its server has been seen to count code points, bytes by four, and browsers send each line break
    as two and count UTF-16: the largest of these is what must fit.
    """
    return len(text.encode("utf-16-le", "replace")) // 2 + text.count("\n")


def fitted(sections: Sequence[Section], most: int = MOST) -> tuple[str, tuple[str, ...]]:
    """Return the page, and the names of what was cut: of equally useful sections the last first."""
    texts = [section.text for section in sections]
    left_out: list[str] = []
    size = sum(counted(text) + 4 for text in texts)  # an empty line after each
    order = sorted(range(len(sections)), key=lambda i: (sections[i].useful, -i))
    for number in order:
        if size <= most - (_ROOM if left_out or size > most else 0):
            break
        section = sections[number]
        size -= counted(section.text) - counted(section.shorter)
        texts[number] = section.shorter
        left_out.append(section.name)
    return "\n\n".join(text for text in texts if text), tuple(left_out)
