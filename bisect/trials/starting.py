"""One start of an isolation: a folder of its own, a launch, and everything given back after it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ..bisection.applying import Applied, applied
from ..bisection.suspicion import CACHES
from ..errors import HangbisectError, UsageError
from ..facts import Trial
from .between import free_now, wait_until_free
from .isolation_plan import OWN_CACHES, Plan
from .starts import Ask
from .trial import try_setting


class Starter:
    """Starts the plan's command under settings, one after the other."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        watch: Mapping[str, str],
        limit: float | None,
        stopping: threading.Event,
        tell: Callable[[str], None],
    ) -> None:
        """`limit`: seconds for each start."""
        self._plan = plan
        self._folder = folder
        self._watch = watch
        self._limit = limit
        self._stopping = stopping
        self._tell = tell
        self._free_before = free_now()

    def start(self, number: int, ask: Ask, left: float | None) -> Trial:
        """Return what came of it, with what it held given back. Raises HangbisectError."""
        folder = self._folder / "trials" / f"{number:02}"
        made = self._applied(ask, folder)
        shutil.rmtree(folder, ignore_errors=True)  # of a start that was interrupted
        limits = [seconds for seconds in (self._limit, left) if seconds is not None]
        try:
            trial = try_setting(
                number,
                made,
                ask.setting,
                ask.question,
                folder,
                limit=min(limits, default=None),
                watch=self._watch,
                stopping=self._stopping,
            )
        except OSError as error:
            raise HangbisectError(f"start {number} cannot be made: {error}") from None
        taken = wait_until_free(self._free_before, made.command, made.environment, self._stopping)
        if taken:
            self._tell(f"going on although {taken}")
        return trial

    def _applied(self, ask: Ask, folder: Path) -> Applied:
        plan = self._plan
        toggles = {name: value for name, value in ask.setting.items() if name not in OWN_CACHES}
        try:
            made = applied(plan.command, toggles, plan.table, plan.environ, plan.ours)
        except UsageError as error:
            raise HangbisectError(str(error), error.help) from None
        caches = {}
        if len(toggles) < len(ask.setting):
            caches = {name: str(folder.resolve() / "caches" / name.lower()) for name in CACHES}
        return replace(made, environment={**plan.environment, **made.environment, **caches})
