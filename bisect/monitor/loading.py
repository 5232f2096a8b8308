"""What only a hang needs, loaded before the disk that it lies on may be what hangs.

Not at the start: ranks wait for the monitor then, and most jobs that end well at once never need
it. Whoever needs it earlier imports it where it is used.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

AFTER = 10.0  # seconds of a job
_NEEDED = (
    *("monitor.inquiry", "monitor.inspection", "monitor.log_reading"),
    *("evidence.look", "evidence.machine", "evidence.collectives"),
    *("diagnosis.case", "diagnosis.explained", "diagnosis.causes.catalogue"),
    *("report.terminal", "report.evidence", "report.stacks", "report.tree"),
)


def load() -> None:
    """Import it. May block, so call it in a thread; never raises."""
    package = __name__.partition(".")[0]
    for name in _NEEDED:
        with suppress(Exception):  # then it fails where it is used, and is told there
            import_module(f"{package}.{name}")
    with suppress(Exception):
        import_module(f"{package}.diagnosis.library").networkx()
