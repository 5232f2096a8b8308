"""The templates of the page, and what a browser is told to allow in it: nothing but our own."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from .shown import Shown

_FOLDER = Path(__file__).resolve().parents[2] / "data" / "html"


def rendered(shown: Shown, **parts: object) -> str:
    """Return the page that the templates make of its parts. Every text in it passes `shown`."""
    style, script = _source("page.css"), _source("page.js")
    return (
        _environment()
        .get_template("page.html")
        .render(
            shown=shown,
            policy=Markup(policy(style, script)),  # these three are our own words
            style=Markup(style),
            script=Markup(script),
            **parts,
        )
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_gate,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@pass_context
def _gate(context: Context, value: object) -> object:
    """Return what a template prints as it may be shown."""
    shown: Shown = context["shown"]
    return shown.gate(value)


def policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: this style, this script, and nothing from anywhere."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _source(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
