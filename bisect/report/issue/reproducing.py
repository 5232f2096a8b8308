"""How to reproduce a run: the exact command."""

from __future__ import annotations

from ..kept.run import KeptRun
from .command import quoted
from .length import Section
from .plain import fenced


def reproducing(run: KeptRun) -> list[Section]:
    """Return the command, and what to start to see it again and to find what it comes from."""
    words = list(run.verdict.get("command", ()))
    if not words:
        return []
    line = quoted(words)
    parts = ["### How to reproduce", fenced([line], "sh")]
    if run.outcome == "hang":
        again = line if words[:1] == ["hangbisect"] else f"hangbisect run -- {line}"
        parts += ["Watched, and searched for what it comes from:"]
        parts += [fenced([again, f"hangbisect isolate -- {line}"], "sh")]
    return [Section("\n\n".join(parts), 88, "how to reproduce")]
