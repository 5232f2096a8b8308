"""What the pages in docs/ say of names, values and commands, compared with the code."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from hangbisect import commands
from hangbisect.base import events
from hangbisect.base.command_words import pipeline_of
from hangbisect.base.place import find_place
from hangbisect.base.typed_messages import fields_of
from hangbisect.cli import INTERNAL_ERROR, NOBODY_READS, USAGE
from hangbisect.rank import arguments
from hangbisect.rank.exit_proxy import EXIT_STATUS
from hangbisect.rank.injections import KINDS
from hangbisect.search.isolation import IsolationOutcome
from hangbisect.search.node_search import NodesOutcome
from hangbisect.toggles.table import TOGGLES

from .examples import for_each

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def first_cells(page: str) -> list[str]:
    """Return the first cell of every table row of a page that is `code`, without its marks."""
    return re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    return program("make_reference")


def test_schemas_are_what_the_types_say() -> None:
    for path, made in program("make_schemas").made():
        assert path.read_text(encoding="utf-8") == made, "run: python docs/make_schemas.py"


def test_what_is_made_from_the_code_is_up_to_date(maker: Any) -> None:
    for page in maker.PAGES:
        written = page.read_text(encoding="utf-8")
        assert written == maker.made(written), "run: python docs/make_reference.py"
    pages = "".join(page.read_text(encoding="utf-8") for page in maker.PAGES)
    parts = re.findall(r"made from the code: ([\w-]+)", pages)
    assert sorted(parts) == sorted(maker.PARTS)


# ---- the command line ----------------------------------------------------------------------------


def test_every_argument_is_there(maker: Any) -> None:
    page = text("reference/command-line.md")
    assert [flag for flag in maker._parser().flags if f"`{flag}" not in page] == []


def test_every_value_of_a_toggle_is_there() -> None:
    lines = text("reference/toggles.md").splitlines()
    rows = {
        name: next(r for r in lines if f"| `{name}` |" in r) for name in [t.name for t in TOGGLES]
    }
    shown = {"excepted": "excepted:HOST"}
    missing = [
        (t.name, v) for t in TOGGLES for v in t.values if f"`{shown.get(v, v)}`" not in rows[t.name]
    ]
    assert missing == []


def test_the_readme_names_the_toggles_of_the_pipeline_with_their_values() -> None:
    page = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(--[a-z-]+)` \| (.+) \|$", page, re.MULTILINE)
    known = {entry.flag: entry for entry in TOGGLES if entry.flag and "startup" in entry.pipelines}
    assert {flag for flag, _ in rows} == set(known)
    for flag, values in rows:
        listed = [
            value for value in re.findall(r"`([^`]+)`", values) if value in known[flag].values
        ]
        assert tuple(listed) == known[flag].values


def test_every_kind_of_injection_is_there() -> None:
    assert set(KINDS) <= set(first_cells(text("reference/command-line.md")))


def test_every_exit_status_is_there() -> None:
    rows = re.findall(r"^\| (\d+) \|", text("reference/exit-status.md"), re.MULTILINE)
    assert {int(row) for row in rows} == {
        USAGE,
        INTERNAL_ERROR,
        NOBODY_READS,
        *EXIT_STATUS.values(),
    }


def _commands() -> Iterator[tuple[str, str]]:
    """Yield page and command for every command in a block of code."""
    for page in PAGES:
        for block in re.findall(r"^```(?:\w*)\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                if re.match(r"\s*(\w+=\S+ )*(torchrun|python|hangbisect) ", line):
                    yield page.relative_to(DOCS).as_posix(), line.strip()


def _our_words(line: str) -> list[str] | None:
    """Return what a command says to us, None if it does not start us."""
    words = shlex.split(re.split(r"\s+(?:[|>]|2>|&&)", line)[0])
    for index, word in enumerate(words):
        if word in ("bisect", "hangbisect"):
            return words[index + 1 :]
    return None


@pytest.mark.parametrize(("page", "command"), list(_commands()))
def test_a_command_in_the_pages_is_one_that_we_take(page: str, command: str) -> None:
    words = _our_words(command)
    if words is None or "OPTIONS" in command:
        return
    if words and words[0] in commands.names():
        return  # its own arguments are its own matter
    parsed, _ = arguments.parse_walk_arguments(words, find_place({}), {})
    assert parsed.pipeline == pipeline_of(("-m", "bisect", *words))


# ---- formats -------------------------------------------------------------------------------------


def _fields(schema: Any, part: Any, above: str = "") -> Iterator[str]:
    """Yield every field of a part of a schema, `a.b` for field b of object a, or of the objects in
    list a.
    """
    for option in (part, *part.get("anyOf", ()), part.get("items", {})):
        named = schema["$defs"].get(option.get("$ref", "").rpartition("/")[2], option)
        for name, field in named.get("properties", {}).items():
            yield above + name
            yield from _fields(schema, field, f"{above}{name}.")


def _values(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from filter(None, schema.get("enum", ()))
        for below in schema.values():
            yield from _values(below)
    elif isinstance(schema, list):
        for below in schema:
            yield from _values(below)


def _schema(package: Path, name: str) -> Any:
    return json.loads((package / "data" / f"{name}.schema.json").read_text("utf-8"))


def test_the_fields_of_a_verdict_are_those_of_the_schema(package: Path) -> None:
    fields_table = text("reference/verdict.md").partition("\n## ")[0]
    schema = _schema(package, "verdict")
    assert first_cells(fields_table) == list(_fields(schema, schema))


def test_every_value_that_a_verdict_may_have_is_there(package: Path) -> None:
    page = text("reference/verdict.md")
    values = _values(_schema(package, "verdict"))
    assert [value for value in values if f"`{value}`" not in page] == []


def test_every_field_and_every_outcome_of_an_isolation_is_there(package: Path) -> None:
    schema = _schema(package, "isolation")
    listed = first_cells(text("reference/isolation.md"))
    assert listed == [*_fields(schema, schema), *get_args(IsolationOutcome)]


def test_every_field_and_every_outcome_of_a_search_for_nodes_is_there(package: Path) -> None:
    schema = _schema(package, "nodes")
    listed = first_cells(text("reference/nodes.md"))
    assert listed == [*_fields(schema, schema), *get_args(NodesOutcome)]


def test_every_kind_of_event_has_a_row_with_its_fields() -> None:
    noted = {name: kind for name, kind in events.KINDS.items() if kind not in _NOT_NOTED}
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", text("reference/events.md"), re.M)
    assert sorted(name for name, _ in rows) == sorted(noted)
    for name, row in rows:
        fields = fields_of(noted[name]).keys() - _OF_EVERY_EVENT
        told = {field for field in fields if f"`{field}`" in row}
        assert (name, fields - told - _TOLD_OUTSIDE) == (name, set())


_OF_EVERY_EVENT = fields_of(events.Event).keys()
_NOT_NOTED = (events.Watches, events.Answered)
_TOLD_OUTSIDE = {"job"}  # by monitors alone, and not noted


# ---- the pages among themselves ------------------------------------------------------------------


def _links(page: Path) -> Iterator[tuple[str, Path, str]]:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            yield link, (page.parent / path).resolve() if path else page, anchor


@for_each(PAGES, lambda page: page.as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    for link, target, anchor in _links(page):
        assert target.is_file(), link
        heads = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
        assert not anchor or anchor in slugs, link


def test_every_page_is_reached_from_the_index() -> None:
    lists = (DOCS / "index.md", DOCS / "causes" / "README.md")
    reached = {target for page in lists for _, target, _ in _links(page)}
    assert {page.resolve() for page in PAGES} - reached == {(DOCS / "index.md").resolve()}


def test_every_test_that_a_promise_names_is_there(checkout: Path) -> None:
    page = (checkout / "docs/what-we-promise.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 30
    for path, test in named:
        text = (checkout / path).read_text(encoding="utf-8")
        assert f"def {test}(" in text or not test, f"{path}::{test}"
