"""What a terminal is told so that lines scroll above a table in its last rows.

Sequences of ECMA-48 and DEC's VT100, as xterm's ctlseqs.html has them; every one leaves the cursor
where it was, and is to be written at once. While others write to the same terminal, the margins
(DECSTBM) keep their line feeds off the table: the last row that scrolls is the one above it.
"""

from __future__ import annotations

from collections.abc import Sequence

_SAVE, _RESTORE = "\x1b7", "\x1b8"  # DECSC, DECRC: the cursor, its colours, and its margin's flag
_WHOLE = "\x1b[r"  # DECSTBM: the whole screen scrolls
_INDEX = "\x1bD"  # IND: a line down in the same column, scrolling at the last
_CANCEL = "\x18"  # CAN: forget a sequence that was cut
UNFINISHED = _CANCEL + _RESTORE  # before what follows one of these that was written in part


def reserved(lines: int, height: int) -> str:
    """Make room for a table of `height` rows at the end of `lines`, below the cursor.

    The cursor goes down and up again: what stands in the last rows scrolls up, and where there is
    nothing nothing moves.
    """
    room = f"{_INDEX * height}\x1b[{height}A"
    return f"{_SAVE}{_WHOLE}{_RESTORE}{room}{_SAVE}\x1b[1;{lines - height}r{_RESTORE}"


def table(rows: Sequence[str], lines: int, height: int) -> str:
    """Draw `rows` from the first of the `height` reserved ones on. The margins are set again, for
    a program may have given them up (`clear`, `reset`).
    """
    shown = [*rows, *[""] * (height - len(rows))][:height]
    first = lines - height + 1
    drawn = "".join(f"\x1b[{first + i};1H\x1b[0m{row}\x1b[0m\x1b[K" for i, row in enumerate(shown))
    return f"{_SAVE}\x1b[1;{lines - height}r{drawn}{_RESTORE}"


def withdrawn(lines: int, height: int) -> str:
    """Take the table away: the last `height` of `lines` are empty, and the whole screen scrolls."""
    first = lines - height + 1
    return f"{_SAVE}{_WHOLE}\x1b[0m\x1b[{first};1H\x1b[J{_RESTORE}"


def lost() -> str:
    """Take away a table of which it is not known where it stands any more: the terminal has got
    another size, or its drawer was killed. It was below the cursor.
    """
    return f"{_CANCEL}{_SAVE}{_WHOLE}{_RESTORE}\x1b[J"
