"""Internal: be the monitor of a node. Ranks start it."""

from __future__ import annotations

from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Watch until the job is over."""
    from ..monitor.main import main

    return main(argv[0])
