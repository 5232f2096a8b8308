"""Write the JSON schemas of verdict.json, isolation.json and matrix.json: from the types that these
files are written from and read into, with the comments of their fields as descriptions.

    python docs/make_schemas.py

tests/test_docs.py fails while a schema is not what the types say.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import runpy
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

DATA = Path(__file__).resolve().parents[1] / "bisect" / "data"
# The type of what each file holds, and what that is.
FILES = {
    "verdict": (
        "base.verdict_facts.Verdict",
        "The answer of one run. Seconds throughout; what is not known is null or empty.",
    ),
    "isolation": ("search.isolation.Isolation", "What an isolation knows, secrets masked."),
    "matrix": ("search.cells.RecordedMatrix", "What came of a matrix's cells, secrets masked."),
    "nodes": ("search.node_search.NodesAnswer", "What a search for bad nodes knows, masked."),
}
# Files of the same schema that an older version wrote have all fields but these.
_LATER = (
    *("Verdict.seen_ranks", "Verdict.chain", "Verdict.notes", "Verdict.guessed", "Cause.avoid"),
    *("Verdict.trained", "Verdict.nodes", "Verdict.partial", "HangPlace.trained"),
    "Verdict.differences",
    *("Where.role", "Where.ended"),
    *("ToggleChange.package", "ToggleChange.hung"),
)
# A rank, as `write_rank` writes it.
_RANK = {
    "description": "its number; where nobody could read that, its process",
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": r"^\? \(pid [0-9]+( on [^\n]+)?\)$"},
    ],
}
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
_FIELD = re.compile(r"    (?P<name>\w+): [^#]*(?:# (?P<says>.*))?")
_COMMENT = re.compile(r"    # (.*)")

Schema = dict[str, Any]


def made() -> Iterator[tuple[Path, str]]:
    """Yield each file of a schema, and what the types say that it holds."""
    for name, (kind, description) in FILES.items():
        module, _, type_name = kind.rpartition(".")
        objects: dict[str, Schema] = {}
        _schema_of(getattr(_ours(module), type_name), objects)
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"{name}.json, schema {2 if name == 'verdict' else 1}",
            "description": description,
            **objects.pop(type_name),
            "$defs": objects,
        }
        text = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        yield DATA / f"{name}.schema.json", text


def _ours(name: str) -> Any:
    """Return a module of the package, which somebody has imported as `hangbisect`."""
    return importlib.import_module(f"hangbisect.{name}")


def _schema_of(kind: Any, objects: dict[str, Schema]) -> Schema:
    """Return the schema of a type; those of dataclasses go to `objects`, by name."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind == _ours("base.schema_types").Component:
        return {"enum": list(components())}
    if origin is Annotated:
        return {**_schema_of(inside[0], objects), **dict(inside[1:])}
    if is_dataclass(kind):
        assert isinstance(kind, type)
        if kind.__name__ not in objects:
            objects[kind.__name__] = {}  # its place, before those of what it holds
            objects[kind.__name__] = _object_schema(kind, objects)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if _ours("base.identity").UnknownRank in inside:
        objects["Rank"] = _RANK
        rank = {"$ref": "#/$defs/Rank"}
        return _or_null(rank) if NoneType in inside else rank
    if origin in (Union, UnionType):
        (only,) = (one for one in inside if one is not NoneType)
        return _or_null(_schema_of(only, objects))
    if origin is Literal:
        return {"const": inside[0]} if len(inside) == 1 else {"enum": list(inside)}
    if origin is tuple:
        array = {"type": "array", "items": _schema_of(inside[0], objects)}
        size = len(inside)
        return array if inside[-1] is ... else {**array, "minItems": size, "maxItems": size}
    if origin is not None and issubclass(origin, Mapping):
        values = {} if inside[1] is object else _schema_of(inside[1], objects)
        return {"type": "object", "additionalProperties": values or True}
    return {"type": _PLAIN[kind]}


def _object_schema(kind: type, objects: dict[str, Schema]) -> Schema:
    hints, says = get_type_hints(kind, include_extras=True), _comments(kind)
    names = _ours("base.json_codec").json_names(kind)
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [key for _, key in names if f"{kind.__name__}.{key}" not in _LATER],
        "properties": {
            key: {
                **({"description": says[name]} if name in says else {}),
                **_schema_of(hints[name], objects),
            }
            for name, key in names
        },
    }


def _or_null(schema: Schema) -> Schema:
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "type" in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _comments(kind: type) -> dict[str, str]:
    """Return the comment of each field that has one: behind it, or in the lines above it."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        if comment := _COMMENT.fullmatch(line):
            above.append(comment[1])
            continue
        if (field := _FIELD.fullmatch(line)) and (field["says"] or above):
            found[field["name"]] = field["says"] or " ".join(above)
        above = []
    return found


def components() -> tuple[str, ...]:
    """Return all components that a verdict may name: those of the pipelines' steps and phases, and
    of the steps of users' own scripts.
    """
    pipeline, calls = _ours("base.pipeline"), _ours("rank.watched.known_calls")
    rows = [row for name in pipeline.PIPELINES for row in pipeline.find_pipeline(name).table]
    told = [part.component for row in rows for part in (row, *row.phases)]
    told += [row.component for row in (*calls.KNOWN_CALLS, calls.FIRST_STEP)]
    return tuple(dict.fromkeys(told))


if __name__ == "__main__":
    # It puts the checkout into sys.modules as `hangbisect`.
    runpy.run_path(str(DATA.parent / "__main__.py"), run_name="checkout")
    for path, text in made():
        path.write_text(text, encoding="utf-8")
