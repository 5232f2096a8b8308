"""What the answers of two versions are meant to differ in: a pattern each, and why.

`same_answers.py` compares two installations, and asks this table about each difference, a line:

    - line TEXT        only the first printed it        + line TEXT     only the second
    - file NAME        only the first has left it       + file NAME
    - field FILE: PATH                                  + field FILE: PATH
    value FILE: PATH: WHAT ONLY THE FIRST HAS -> WHAT ONLY THE SECOND HAS
    status (0,) -> (1,)

Numbers stand there as 0. These rows are about what changed after commit 60a9d44. For another pair
of versions empty the table, and let it grow by what is decided to be wanted.
"""

from __future__ import annotations

import re

_WANTED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "sizes are in KiB, MiB and GiB everywhere",
        (r"value .*\d [kMG]B\b.* -> .*[KMG]iB",),
    ),
    (
        "how sure a cause is, is one of three words",
        (r"[+-] field .*\.(?:level|score|confidence)",),
    ),
    (
        "fields that came later",
        (r"\+ field .*verdict\.json: \.(?:guessed|seen_ranks\[\]|trained)",),
    ),
)
_PATTERNS = [
    (why, re.compile(pattern, re.DOTALL)) for why, patterns in _WANTED for pattern in patterns
]


def explain_difference(line: str) -> str:
    """Return why a difference is wanted, "" if nothing says so."""
    return next((why for why, pattern in _PATTERNS if pattern.fullmatch(line)), "")
