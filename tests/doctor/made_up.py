"""Settings and findings for tests: what a check says of made-up facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hangbisect.base.launcher_env import Ancestor
from hangbisect.base.place import Place
from hangbisect.doctor.examination import Finding, Setting

_PLACED = {
    *("launcher", "rank", "world", "local_world", "master", "contradictions", "ancestors", "pids")
}
TORCHRUN = Ancestor({}, ("python", "/bin/torchrun", "train.py"))


def setting(**given: Any) -> Setting:
    """Return a setting of these variables, in capitals; the others are the place's (launcher, rank,
    world, local_world, master, contradictions) and what is above it (ancestors, pids).
    """
    environ: dict[str, str] = {name: value for name, value in given.items() if name not in _PLACED}
    world = given.get("world", 1)
    place = Place(
        rank=given.get("rank", 0),
        local_rank=0,
        world_size=world,
        local_world_size=given.get("local_world", world),
        node=0,
        attempt=0,
        host="n01",
        launcher=given.get("launcher"),
        launcher_pid=1,
        job="",
        master=given.get("master", environ.get("MASTER_ADDR")),
        contradictions=given.get("contradictions", ()),
    )
    return Setting(environ, place, given.get("ancestors", ()), given.get("pids", ()))


def said(
    judge: Callable[[Setting, Any], Iterable[Finding]], facts: Any, given: Setting | None = None
) -> list[tuple[str, str]]:
    """Return (level, value) of all that is found; every one but ok and unknown has a next step."""
    found = list(judge(given or setting(), facts))
    assert found, "a check always says something"
    for one in found:
        assert one.value
        assert one.next or one.level in ("ok", "unknown"), one
    return [(one.level, one.value) for one in found]


def levels(
    judge: Callable[[Setting, Any], Iterable[Finding]], facts: Any, given: Setting | None = None
) -> list[str]:
    """Return the levels alone."""
    return [level for level, _ in said(judge, facts, given)]
