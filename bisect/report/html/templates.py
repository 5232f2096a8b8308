"""What of a run's texts a page may show (secrets replaced, on one line, not too long), and the
templates that print them; a browser is told to allow nothing but our own style and script.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FunctionLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from ...base.words import join_lines

if TYPE_CHECKING:
    from ..redaction import AnyRedactor


LONGEST = 600  # characters of one text


class ShownTexts:
    """Makes texts fit to be shown."""

    def __init__(self, redactor: AnyRedactor) -> None:
        self._redactor = redactor

    def text(self, text: str, most: int = LONGEST) -> str:
        """Return a text without secrets and control characters, cut to `most` characters."""
        line = _shorten(self._redactor.text(text))
        return line if len(line) <= most else f"{line[: most - 1]}…"

    def value(self, name: str, value: str) -> str:
        """Return the value of a variable, whose name may say that it is a secret."""
        return _shorten(self._redactor.value(name, value))

    def gate(self, value: object) -> object:
        """Return what a template is about to print: every text passes here, whoever made it.

        Raises TypeError for what has no place in a page.
        """
        if isinstance(value, Markup | int | float):
            return value
        if isinstance(value, str):
            return self.text(value)
        raise TypeError(f"a template prints {value!r}")


def _shorten(text: str) -> str:
    line = " ".join(text.split()) if text.isprintable() else join_lines(text)  # the same, sooner
    if len(line) <= LONGEST:
        return line
    return f"{line[: LONGEST - 40]}… ({len(line):,} characters)"


_FOLDER = Path(__file__).resolve().parents[2] / "data" / "html"


def render_page(shown: ShownTexts, **parts: object) -> str:
    """Return the page that the templates make of its parts. Every text in it passes `shown`."""
    style, script = _read_source("page.css"), _read_source("page.js")
    return (
        _make_template_environment()
        .get_template("page.html")
        .render(
            shown=shown,
            policy=Markup(content_policy(style, script)),  # these three are our own words
            style=Markup(style),
            script=Markup(script),
            **parts,
        )
    )


@cache
def _make_template_environment() -> Environment:
    return Environment(
        loader=FunctionLoader(_read_source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_gate,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@pass_context
def _gate(context: Context, value: object) -> object:
    """Return what a template prints as it may be shown."""
    shown: ShownTexts = context["shown"]
    return shown.gate(value)


def content_policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: this style, this script, and nothing from anywhere."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _read_source(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
