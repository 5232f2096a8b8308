"""What stands in front of a line in a log: colours, the time that a collector puts there, and the
prefix of a launcher, which may tell whose the line is.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from .lazy_dataclass import dataclass

_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# kubectl logs --timestamps and GitHub Actions: RFC 3339, with up to nine digits of a second.
_TIME = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[T ](?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)? ?"
)
# Each with the rank as its first group where the prefix tells it.
_FRONTS = (
    re.compile(r"\[rank(\d{1,6})\]: ?"),  # torch
    re.compile(r"\[\d{1,6},(\d{1,6})\]<std(?:out|err)> ?:? ?"),  # mpirun --tag-output
    re.compile(r" {0,5}(\d{1,6}): (?=\S|  )"),  # srun --label
    re.compile(r"\[[A-Za-z_]\w{0,40}?\d{1,6}\]: ?"),  # torchrun --tee: a role and a local rank
    re.compile(r"\[pod/[^\]\s]{1,200}\] ?"),  # kubectl logs --prefix
    re.compile(r"[\w.-]{1,80} +\| "),  # docker compose
)


@dataclass(frozen=True)
class StrippedLine:
    """A line without what stood in front of it."""

    text: str
    task: int | None = None  # rank in the whole job, where a prefix tells it
    at: float | None = None  # seconds since 1970, where a collector put the time in front


def strip_prefixes(line: str) -> StrippedLine:
    """Return a line without colours and prefixes."""
    text = strip_colours(line)
    task, at = None, None
    for _ in range(4):  # a collector's time, then its name, then the launcher's, in any order
        match = _TIME.match(text)
        if match and at is None:
            at = _parse_time(match)
        else:
            match = next((m for front in _FRONTS if (m := front.match(text))), None)
            if match and match.re.groups:
                task = int(match[1])
        if match is None:
            break
        text = text[match.end() :]
    return StrippedLine(text, task, at)


def strip_colours(line: str) -> str:
    """Return a line without a terminal's control sequences."""
    return _COLOURS.sub("", line) if "\x1b" in line else line


def _parse_time(match: re.Match[str]) -> float | None:
    part = (match["part"] or "0")[:6].ljust(6, "0")
    zone = match["zone"] or "Z"
    zone = "+00:00" if zone == "Z" else zone
    try:
        when = datetime.fromisoformat(f"{match['day']}T{match['clock']}.{part}{zone}")
        return when.astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None
