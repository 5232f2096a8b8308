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
from ..steering import ASKED, read, written
from ..steering import VARIABLE as STEER
from .between import free_now, wait_until_free
from .isolation_plan import OWN_CACHES, Plan
from .starts import Ask
from .trial import try_setting

_OWN = "caches"  # in a start's folder: those that it gets in the place of the shared ones


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
        shutil.rmtree(folder / _OWN, ignore_errors=True)  # perhaps gigabytes, and of no further use
        environ = {**self._plan.environ, **made.environment}
        taken = wait_until_free(self._free_before, made.command, environ, self._stopping)
        if taken:
            self._tell(f"going on although {taken}")
        return trial

    def _applied(self, ask: Ask, folder: Path) -> Applied:
        plan = self._plan
        toggles = {name: value for name, value in ask.setting.items() if name not in OWN_CACHES}
        # Where the script does not overrule a variable, the rank side leaves the call as it is.
        table = [replace(toggle, overruled=True) for toggle in plan.table]
        try:
            made = applied(plan.command, toggles, table, plan.environ, plan.ours)
        except UsageError as error:
            raise HangbisectError(str(error), error.help) from None
        caches = {}
        if len(toggles) < len(ask.setting):
            caches = {name: str(folder.resolve() / _OWN / name.lower()) for name in CACHES}
        whole = {**plan.environment, **made.environment, **caches, **self._asked(made)}
        return replace(made, environment=whole)

    def _asked(self, made: Applied) -> dict[str, str]:
        """Return what lets a script of the user's own tell which toggles it comes to."""
        plan = self._plan
        if plan.ours:
            return {}
        asked = {toggle.name: ASKED for toggle in plan.table if toggle.told or toggle.in_code}
        set_to = {**read(plan.environ.get(STEER, "")), **read(made.environment.get(STEER, ""))}
        return {STEER: written({**asked, **set_to})}
