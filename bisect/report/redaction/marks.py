"""Marks for secrets: the same for the same secret, and nothing of it can be told from one."""

from __future__ import annotations

import re
from collections import Counter
from urllib.parse import quote, unquote

from .values import is_nothing

# What a mark looks like. On GitHub `#` would be a link to an issue, `<...>` vanish as a tag.
MARK = re.compile(r"\[[A-Za-z&][A-Za-z& ]{2,28} [0-9]{1,6}\]")
_SHORTEST = 6  # characters of what is looked for wherever it stands
_MOST = 500  # values that are looked for: each is, in every text
_WORD = re.compile(r"[A-Za-z]{1,11}|[0-9]{1,7}")


def kind_in(mark: str) -> str:
    """Return the kind of secret that a mark tells."""
    return mark[1:].rpartition(" ")[0]


class Marks:
    """The secrets that were met, each with its mark, numbered by kind in the order of meeting."""

    def __init__(self) -> None:
        """Start without any."""
        self.counts: Counter[str] = Counter()  # replacements, by kind
        self.by_value: dict[str, str] = {}  # what is looked for everywhere: its mark
        self._marks: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()

    def mark(self, secret: str, kind: str) -> str:
        """Return the mark of `secret`; of what was met before it is the same, of whatever kind."""
        mark = self._marks.get(secret)
        if mark is None:
            self._numbers[kind] += 1
            mark = self._marks[secret] = f"[{kind} {self._numbers[kind]}]"
        return mark

    def count(self, mark: str) -> None:
        """Count that a mark was put somewhere."""
        self.counts[kind_in(mark)] += 1

    def find_again(self, secret: str, kind: str) -> None:
        """Have `secret` found wherever it stands, in URLs and within words too.

        What is short or a common word is not: it would be found everywhere.
        """
        if secret in self.by_value or len(self.by_value) >= _MOST or "\n" in secret:
            return
        if len(secret) < _SHORTEST or is_nothing(secret) or _WORD.fullmatch(secret):
            return
        mark = self.mark(secret, kind)
        for form in (secret, unquote(secret), quote(secret, safe="")):
            if len(form) >= _SHORTEST:
                self.by_value.setdefault(form, mark)
                self._marks.setdefault(form, mark)

    @property
    def secrets(self) -> int:
        """How many different secrets were met."""
        return sum(self._numbers.values())
