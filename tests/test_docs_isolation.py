"""What docs/reference/isolation.md says, compared with the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from hangbisect.search.isolation import IsolationOutcome

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "isolation.md"


def fields(schema: dict[str, Any], above: str = "") -> Iterator[str]:
    for option in (schema, *schema.get("anyOf", ()), schema.get("items", {})):
        for name, field in option.get("properties", {}).items():
            yield above + name
            yield from fields(field, f"{above}{name}.")


def test_every_field_and_every_outcome_is_there(package: Path) -> None:
    schema = json.loads((package / "data" / "isolation.schema.json").read_text("utf-8"))
    listed = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    outcomes = get_args(IsolationOutcome)
    assert listed == [*fields(schema), *outcomes]
    assert schema["properties"]["outcome"]["enum"] == list(outcomes)
