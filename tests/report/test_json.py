"""verdict.json: what is unknown is null or empty, what is wrong is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import hangbisect.base.verdict_facts as facts_module
import jsonschema
import pytest
from hangbisect.base.json_codec import Misfit, from_json, to_json
from hangbisect.base.verdict_facts import Candidate, Cause, Edge, Ranks, Verdict, Wait

BARE = Verdict(
    outcome="hang",
    pipeline="startup",
    command=(),
    attempt=0,
    world_size=2,
    checkpoint=None,
    ranks=Ranks(),
)
SCHEMA = json.loads(
    (Path(facts_module.__file__).parents[1] / "data" / "verdict.schema.json").read_text("utf-8")
)


def valid(data: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(SCHEMA).is_valid(data))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_what_is_not_known_is_null_or_empty() -> None:
    data = to_json(BARE)
    assert valid(data)
    nulls = {name for name, value in data.items() if value is None}
    assert nulls == {
        "checkpoint",
        "component",
        "call",
        "frame",
        "waits_for",
        "cause",
        "barrier_opened",
        "trained",
    }
    assert data["try"] == data["candidates"] == data["where"] == data["slow_steps"] == []
    assert data["chain"] == data["notes"] == []


def test_a_whole_verdict_is_read_as_it_was_written() -> None:
    verdict = replace(
        BARE,
        cause=Cause("x", "a title", "Because.", "fits", ("a fact",), ("do it",)),
        candidates=(Candidate((1,), None, "fits"),),
        chain=(Edge("rank 0", "10.0.0.1:443", "socket", "ESTABLISHED"),),
        waits_for=Wait("socket", "10.0.0.1:443 ESTABLISHED", 7, "server"),
        seen_by="pystack",
        notes=("the launcher is gone",),
    )
    data = to_json(verdict)
    assert valid(data)
    assert from_json(Verdict, data) == verdict
    assert data["chain"][0]["evidence"] == "ESTABLISHED"
    assert data["cause"]["avoid"] == ["do it"]


def test_an_older_file_is_read_too() -> None:
    old = {k: v for k, v in to_json(BARE).items() if k not in ("chain", "notes")}
    assert valid(old)
    assert from_json(Verdict, old) == BARE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("outcome", "hung"),
        ("component", "network"),
        ("schema", 3),
        ("seen_by", "gdb"),
        ("waits_for", {"kind": "nothing", "detail": "", "pid": None, "process": None}),
        ("extra", 1),
    ],
)
def test_the_schema_is_strict(name: str, value: object) -> None:
    assert not valid({**to_json(BARE), name: value})


def test_another_schema_is_not_read() -> None:
    with pytest.raises(Misfit, match="schema: one of 1, 2 was expected, found 3"):
        from_json(Verdict, {**to_json(BARE), "schema": 3})
