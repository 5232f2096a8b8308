"""Write the parts of docs/reference/ that come from the code, between their markers.

    python docs/make_reference.py

A part stands between `<!-- made from the code: NAME -->` and `<!-- end -->`; the words around it
are written by hand. tests/test_docs.py fails while a part is not what the code says.
"""

from __future__ import annotations

import argparse
import importlib
import re
import runpy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
PAGES = (DOCS / "reference" / "command-line.md",)
_PART = re.compile(r"(<!-- made from the code: (?P<name>[a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_WATCH = "the watch"  # the group whose options are in the environment too


def made(page: str) -> str:
    """Return the text of a page with every part as the code has it. Raises KeyError."""

    def part(match: re.Match[str]) -> str:
        lines = "\n".join(PARTS[match["name"]]())
        return f"{match[1]}\n{lines}\n\n{match[3]}"

    return _PART.sub(part, page)


def _ours(name: str) -> Any:
    """Return a module of the package, which somebody has imported as `hangbisect`."""
    return importlib.import_module(f"hangbisect.{name}")


def _parser() -> argparse.ArgumentParser:
    """Return the parser of a walk of the pipeline `startup`, without its --help."""
    arguments, startup = _ours("rank.arguments"), _ours("pipelines.startup")
    parser: argparse.ArgumentParser = _ours("rank.argument_types").Parser()
    _ours("rank.watch_options").add_watch_options(parser)
    arguments._add_walk_options(parser, startup.PIPELINE)
    startup.PIPELINE.add_arguments(parser)
    return parser


# ---- the parts -----------------------------------------------------------------------------------


def _options() -> Iterator[str]:
    """Yield a table for each group of options; toggles have a table of their own."""
    toggles = {entry.flag for entry in _ours("bisection.toggles").TOGGLES}
    for group in _parser()._action_groups:
        actions = [a for a in group._group_actions if a.option_strings[0] not in toggles]
        if not actions:
            continue
        title = group.title or ""
        yield f"### {title[:1].upper()}{title[1:]}"
        yield ""
        if title == _WATCH:
            yield from _table(
                ("option", "what it says", "environment"),
                ((_usage(a), a.help or "", _code(_variable(a))) for a in actions),
            )
        else:
            yield from _table(
                ("option", "what it says"), ((_usage(a), a.help or "") for a in actions)
            )
        yield ""


def _checkpoints() -> Iterator[str]:
    rows = []
    for row in _ours("pipelines.startup").PIPELINE.table:
        deadline = "by phase" if row.phases else f"{row.deadline:g} s"
        rows.append((str(row.number), _code(row.name), row.title, row.component, deadline))
        for phase in row.phases:
            seconds = "none" if phase.deadline is None else f"{phase.deadline:g} s"
            rows.append(("", _code(phase.name), "(phase)", phase.component, seconds))
    yield from _table(("number", "name", "title", "component", "deadline"), rows)


def _toggles() -> Iterator[str]:
    rows = []
    for entry in _ours("bisection.toggles").TOGGLES:
        values = [f"`{value}`{'*' * (value == entry.default)}" for value in entry.values]
        more = {"count": ["`N`"], "strategy": []}.get(entry.accepts, [])
        text = " → ".join([*more, *values])
        text += ", or another that Lightning registers" * (entry.accepts == "strategy")
        rows.append((_code(entry.flag), text, entry.component, entry.kind, entry.help, entry.cost))
    yield from _table(("toggle", "values", "component", "kind", "what it says", "cost"), rows)


def _variables() -> Iterator[str]:
    rows = [
        (f"`{entry.flag} {value}`", f"`{variable}={setting}`")
        for entry in _ours("bisection.toggles").TOGGLES
        for value, variable, setting in entry.environment
    ]
    yield from _table(("value", "in a script of yours"), rows)


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "options": _options,
    "checkpoints": _checkpoints,
    "toggles": _toggles,
    "variables": _variables,
}


# ---- words ---------------------------------------------------------------------------------------


def _usage(action: argparse.Action) -> str:
    return _code(" ".join([action.option_strings[0], *_metavar(action)]))


def _metavar(action: argparse.Action) -> list[str]:
    return [str(action.metavar)] if action.metavar else []


def _variable(action: argparse.Action) -> str:
    prefix: str = _ours("rank.watch_options").ENVIRONMENT_PREFIX
    return prefix + action.option_strings[0][2:].replace("-", "_").upper()


def _code(text: str) -> str:
    return f"`{text}`"


def _table(
    head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]
) -> Iterator[str]:
    yield _row(head)
    yield "|" + "---|" * len(head)
    yield from (_row(cells) for cells in rows)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# ---- the program ---------------------------------------------------------------------------------


if __name__ == "__main__":
    # It puts the checkout into sys.modules as `hangbisect`.
    runpy.run_path(str(DOCS.parent / "bisect" / "__main__.py"), run_name="checkout")
    for page in PAGES:
        page.write_text(made(page.read_text(encoding="utf-8")), encoding="utf-8")
