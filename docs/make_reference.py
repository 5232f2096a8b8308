"""Write the parts of docs/reference/ and README.md that come from the code, between their markers.

    python docs/make_reference.py

A part stands between `<!-- made from the code: NAME -->` and `<!-- end -->`; the words around it
are written by hand. tests/test_docs.py fails while a part is not what the code says.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import re
import runpy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
_FURTHER = (
    "generation",
    "finetuning",
    "replay",
)  # pipelines beside startup: each has a page of its own
PAGES = (
    DOCS.parent / "README.md",
    *(
        DOCS / "reference" / f"{name}.md"
        for name in (
            *("command-line", "toggles", "scenario-files", "matrix", "doctor", "steps"),
            *_FURTHER,
        )
    ),
)
_PART = re.compile(
    r"(<!-- made from the code: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL
)
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


def _parser(pipeline: str = "startup") -> argparse.ArgumentParser:
    """Return the parser of a walk of a pipeline, without its --help."""
    arguments, walked = _ours("rank.arguments"), _ours("base.pipeline").find_pipeline(pipeline)
    parser: argparse.ArgumentParser = _ours("base.argument_types").Parser()
    _ours("rank.watch_options").add_watch_options(parser)
    arguments._add_walk_options(parser, walked)
    walked.add_arguments(parser)
    return parser


def _toggle_flags(pipeline: str) -> set[str]:
    return {entry.flag for entry in _ours("toggles.table").toggles_of(pipeline)}


# ---- the parts -----------------------------------------------------------------------------------


def _options() -> Iterator[str]:
    """Yield a table for each group of options; toggles have a table of their own."""
    toggles = _toggle_flags("startup")
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


def _own_options(pipeline: str) -> Iterator[str]:
    """Yield a table of the options that a pipeline has beside its toggles."""
    toggles = _toggle_flags(pipeline)
    group = next(g for g in _parser(pipeline)._action_groups if g.title == "the pipeline")
    actions = [a for a in group._group_actions if a.option_strings[0] not in toggles]
    yield from _table(("option", "what it says"), [(_usage(a), a.help or "") for a in actions])


def _checkpoints(pipeline: str = "startup") -> Iterator[str]:
    rows = []
    for row in _ours("base.pipeline").find_pipeline(pipeline).table:
        deadline = "by phase" if row.phases else f"{row.deadline:g} s"
        rows.append((str(row.number), _code(row.name), row.title, row.component, deadline))
        for phase in row.phases:
            seconds = "none" if phase.deadline is None else f"{phase.deadline:g} s"
            rows.append(("", _code(phase.name), "(phase)", phase.component, seconds))
    yield from _table(("number", "name", "title", "component", "deadline"), rows)


def _shortly() -> Iterator[str]:
    """Yield a table of the checkpoints that ranks reach, for README.md."""
    rows = [
        (str(row.number), row.title + " (prime suspect)" * row.suspect, _code(row.name))
        for row in _ours("base.checkpoints").STARTUP[1:]
    ]
    yield from _table(("n", "checkpoint", "name"), rows)


def _flags(pipeline: str = "startup") -> Iterator[str]:
    words = _ours("report.catalogues")
    rows = [
        (_code(entry.flag), words.values(entry, "`"), entry.help)
        for entry in _ours("toggles.table").toggles_of(pipeline)
        if entry.flag
    ]
    yield from _table(("toggle", "values", "what it says"), rows)


def _toggles() -> Iterator[str]:
    """Yield a table of all toggles, and a table of how each is applied and read."""
    words, table = _ours("report.catalogues"), _ours("toggles.table").TOGGLES
    rows = [
        (_code(entry.name), words.values(entry, "`"), entry.component, entry.kind, entry.help)
        for entry in table
    ]
    yield from _table(("toggle", "values", "component", "kind", "what it says"), rows)


def _applied() -> Iterator[str]:
    words, table = _ours("report.catalogues"), _ours("toggles.table").TOGGLES
    rows = []
    for entry in table:
        reads = words.format_reading(entry) + "".join(
            f" (with {needs})" for needs in [words.needs(entry)] if needs
        )
        rows.append((_code(entry.name), "; ".join(words.ways(entry)), reads, entry.cost))
    yield from _table(("toggle", "applied", "read", "what it costs"), rows)


def _keys(part: str) -> Iterator[str]:
    """Yield a table of the keys of a mapping in a scenario file."""
    rows = []
    for name, field in getattr(_ours("search.scenario"), part).model_fields.items():
        shown = "required" if field.is_required() else ""
        if isinstance(field.default, str | int) and field.default != "":
            shown = _code(str(field.default))
        rows.append((_code(name), field.description or "", shown))
    yield from _table(("key", "what it says", "default"), rows)


def _matrix() -> Iterator[str]:
    """Yield a table of the fields of matrix.json, from its schema."""
    file = Path(_ours("commands").__file__).parents[1] / "data" / "matrix.schema.json"
    schema = json.loads(file.read_text(encoding="utf-8"))
    fields = {**schema["properties"]}
    of_a_cell = schema["$defs"]["RecordedCell"]["properties"]
    fields |= {f"cells.{name}": field for name, field in of_a_cell.items()}
    rows = [(_code(name), field.get("description", "")) for name, field in fields.items()]
    yield from _table(("field", "what it says"), rows)


def _doctor() -> Iterator[str]:
    """Yield a table of the checks of each family."""
    for family in _ours("doctor.catalogue").FAMILIES:
        yield f"### {family.title}"
        yield ""
        rows = [(_code(check.id), check.title, check.why) for check in family.checks]
        yield from _table(("check", "what must hold", "what hangs where it does not"), rows)
        yield ""


def _steps() -> Iterator[str]:
    """Yield a table of the calls that are steps, each package of Lightning's by one name."""
    table = _ours("rank.watched.known_calls")
    names = (*table.LIGHTNING.values(), *table.FABRIC.values())
    others = tuple(f"{other}." for _, *more in names for other in more)
    rows = []
    for row in (*table.KNOWN_CALLS, table.FIRST_STEP):
        if row.lasts:  # it only makes a process a rank
            continue
        if row.call.startswith(others):
            continue
        call = _code(row.call) + (", its first call" if row.once else "")
        deadline = "none" if row.deadline is None else f"{row.deadline:g} s"
        rows.append((_code(row.step), call, row.title, row.component, deadline))
    yield from _table(("step", "call", "what is so when it is done", "component", "deadline"), rows)


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "options": _options,
    "checkpoints": _checkpoints,
    "checkpoints-shortly": _shortly,
    "flags": _flags,
    "toggles": _toggles,
    "applied": _applied,
    "file": lambda: _keys("Scenario"),
    "settings": lambda: _keys("Setting"),
    "watch": lambda: _keys("Watch"),
    "owntoggles": lambda: _keys("OwnToggle"),
    "changes": lambda: _keys("Change"),
    "isolate": lambda: _keys("Isolate"),
    "matrix": _matrix,
    "doctor": _doctor,
    "steps": _steps,
    **{f"{name}-options": functools.partial(_own_options, name) for name in _FURTHER},
    **{f"{name}-checkpoints": functools.partial(_checkpoints, name) for name in _FURTHER},
    **{f"{name}-toggles": functools.partial(_flags, name) for name in _FURTHER},
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
