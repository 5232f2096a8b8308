"""All checks at the same time, within a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..evidence.aside import aside
from .finding import LEVELS, Check, Family, Finding, Found, Level, Setting, unknown


@dataclass(frozen=True)
class NotRead:
    """Why what a check needs could not be read."""

    why: str


@dataclass(frozen=True)
class Examination:
    """What all checks have found, in their order."""

    found: tuple[Found, ...]
    checks: int
    seconds: float

    @property
    def level(self) -> Level:
        """The worst level; what is not known is no worse than ok."""
        levels = {one.finding.level for one in self.found}
        return next((level for level in LEVELS if level in levels and level != "unknown"), "ok")

    def of(self, level: Level) -> tuple[Found, ...]:
        """Return what is of this level."""
        return tuple(one for one in self.found if one.finding.level == level)


def examine(setting: Setting, families: Sequence[Family]) -> Examination:
    """Return what the checks find. Takes `setting.limit` seconds at most, and a little."""
    begun = time.monotonic()
    checks = [check for family in families for check in family.checks]
    facts = asyncio.run(_read(setting, checks))
    found = tuple(
        Found(check, finding)
        for check in checks
        for finding in judged(setting, check, facts[check.read])
    )
    return Examination(found, len(checks), time.monotonic() - begun)


def judged(setting: Setting, check: Check[Any], facts: Any) -> tuple[Finding, ...]:
    """Return what a check says of its facts. Never raises: no check may hide the others."""
    if isinstance(facts, NotRead):
        return (unknown(facts.why),)
    try:
        return tuple(check.judge(setting, facts))
    except Exception as error:
        return (unknown(_internal(error)),)


async def _read(setting: Setting, checks: Sequence[Check[Any]]) -> dict[Callable[..., Any], Any]:
    reads = list(dict.fromkeys(check.read for check in checks))
    facts = await asyncio.gather(*(_one(setting, read) for read in reads))
    return dict(zip(reads, facts, strict=True))


async def _one(setting: Setting, read: Callable[[Setting], Any]) -> Any:
    try:
        return await aside(read, setting, limit=setting.limit)
    except TimeoutError:
        return NotRead(f"no answer within {setting.limit:g} s")
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return NotRead(f"{error.strerror or error}{where}")
    except Exception as error:
        return NotRead(_internal(error))


def _internal(error: Exception) -> str:
    return f"hangbisect's own error: {type(error).__name__}: {error}"
