"""A step that a script names itself: `with hangbisect.step("build index"):`."""

from __future__ import annotations

import contextlib
import sys
from types import TracebackType
from typing import Any

from .row import Row


class step:
    """Tell the watch that what is inside is a step; nothing where there is no watch.

    `deadline` in seconds: None is never late.
    """

    def __init__(self, name: str, deadline: float | None = None) -> None:
        """The name is also its title."""
        self._row = Row(name, "", name, f"{name} done", "", deadline)
        self._end: Any = None

    def __enter__(self) -> step:
        """The step begins."""
        side = _side()
        self._end = side.begin(self._row) if side is not None else None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """The step ends."""
        if self._end is not None:
            self._end(error)


def _side() -> Any:
    """Return this process's side of the watch; None where there is no watch, or this is no rank."""
    start: Any = sys.modules.get(f"{__package__}.start")
    if start is None:
        return None
    here = f"{__package__}.here"
    if getattr(sys.modules.get(here), "CURRENT", None) is None:
        with contextlib.suppress(Exception):  # whatever fails of ours, the script runs
            start.train()  # before any library that we know
    return getattr(sys.modules.get(here), "CURRENT", None)
