"""What every verdict of a whole job must be, whatever it says."""

from __future__ import annotations

import importlib.resources
import json
from functools import cache
from typing import Any

import jsonschema
from hangbisect.base.checkpoints import STARTUP
from jobs import Ended

MOST_LINES = 15
# By the name of a checkpoint: how lines and verdicts call it.
REACHED = {row.name: f"CHECKPOINT {row.number}: {row.title}" for row in STARTUP}
AT = {row.name: row.words for row in STARTUP}


def check(
    ended: Ended,
    outcome: str,
    *,
    culprit: list[int] | None = None,
    checkpoint: str | None = None,
) -> None:
    """Assert that the job ended with this verdict, in the form that is promised, and cleanly."""
    verdict = ended.verdict
    assert verdict, f"no verdict\n{shown(ended)}"
    jsonschema.validate(verdict, schema())
    assert verdict["outcome"] == outcome, shown(ended)
    if culprit is not None:
        assert verdict["ranks"]["culprit"] == culprit, shown(ended)
    if checkpoint is not None:
        assert verdict["checkpoint"]["name"] == checkpoint, shown(ended)
    if outcome == "ok":
        assert verdict["checkpoint"] is None
    assert ended.left_processes == [], shown(ended)
    assert ended.left_files == [], shown(ended)
    assert "Traceback" not in watch_lines(ended)
    assert "The watch failed" not in ended.err, shown(ended)


def shown(ended: Ended) -> str:
    """Return what a person needs to see of a job that ended as it should not."""
    verdict = json.dumps(ended.verdict)
    return f"status {ended.status}\n{verdict}\n{ended.out[-3000:]}\n{ended.err[-6000:]}"


def watch_lines(ended: Ended) -> str:
    """Return the lines that the monitor printed, without the verdict."""
    return "\n".join(line for line in ended.err.splitlines() if "[watch]" in line)


@cache
def schema(name: str = "verdict") -> Any:
    """Return the schema of NAME.json that ships with the package."""
    files = importlib.resources.files("hangbisect") / "data" / f"{name}.schema.json"
    return json.loads(files.read_text(encoding="utf-8"))
