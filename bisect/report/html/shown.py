"""What of a run's texts a page may show: secrets replaced, one line, not too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from ..words import one_line

if TYPE_CHECKING:
    from ..kept.redacted import Redactor

LONGEST = 600  # characters of one text


class Shown:
    """Makes texts fit to be shown."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def text(self, text: str, most: int = LONGEST) -> str:
        """Return a text without secrets and control characters, cut to `most` characters."""
        line = _fit(self._redactor.text(text))
        return line if len(line) <= most else f"{line[: most - 1]}…"

    def value(self, name: str, value: str) -> str:
        """Return the value of a variable, whose name may say that it is a secret."""
        return _fit(self._redactor.value(name, value))

    def gate(self, value: object) -> object:
        """Return what a template is about to print: every text passes here, whoever made it.

        Raises TypeError for what has no place in a page.
        """
        if isinstance(value, Markup | int | float):
            return value
        if isinstance(value, str):
            return self.text(value)
        raise TypeError(f"a template prints {value!r}")


def _fit(text: str) -> str:
    line = " ".join(text.split()) if text.isprintable() else one_line(text)  # the same, sooner
    if len(line) <= LONGEST:
        return line
    return f"{line[: LONGEST - 40]}… ({len(line):,} characters)"
