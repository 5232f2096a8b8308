"""Two runs compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kept.run import KeptRun
from ..kept.timeline import Timeline, timeline
from ..words import of_ranks
from .found import Comparison, Start
from .launch import launch_differences
from .settings import setting_differences
from .times import time_differences


def compared(a: KeptRun, b: KeptRun) -> Comparison:
    """Return what two runs differ in beyond noise. Nothing in it is redacted."""
    ones, others = timeline(a), timeline(b)
    well = (a.outcome == "ok", b.outcome == "ok")
    times, same_times = time_differences(ones, others, well)
    settings = setting_differences(a, b)
    same = dict(settings.same)
    if same_times:
        same["steps"] = same_times
    missing = [
        f"{name}: {sentence}" for name, run in (("A", a), ("B", b)) for sentence in run.missing
    ]
    missing += [
        f"{name}: no rank told of its steps, so times are not compared"
        for name, times_of in (("A", ones), ("B", others))
        if not times_of.rows
    ]
    if ones.rows and others.rows and not (times or same_times):
        missing.append("the two have no step in common, so times are not compared")
    if settings.hidden:
        missing.append(f"masked by the ranks, so nobody can tell: {', '.join(settings.hidden)}")
    return Comparison(
        a=_start(a, ones),
        b=_start(b, others),
        times=tuple(times),
        settings=(*launch_differences(a, b), *settings.differing),
        same=same,
        missing=tuple(missing),
    )


def _start(run: KeptRun, times: Timeline) -> Start:
    told = run.verdict.get("seconds", {}).get("total")
    return Start(
        folder=str(run.folder),
        outcome=run.outcome,
        what=_what(run.verdict),
        cause=(run.verdict.get("cause") or {}).get("title", ""),
        world_size=run.world_size or len(times.rows),
        seconds=told if told is not None else (times.length if times.rows else None),
    )


def _what(verdict: Mapping[str, Any]) -> str:
    """Return how it went: "hang at 9 WandbLogger ready: rank 1 in wandb.init"."""
    if not verdict:
        return "no verdict"
    place = verdict["checkpoint"]
    shown = (
        [str(place[key]) for key in ("number", "title") if place[key] is not None] if place else []
    )
    at = f" at {' '.join(shown)}" if shown else ""
    phase = f" ({place['phase'].replace('_', ' ')})" if place and place["phase"] else ""
    culprit = verdict["ranks"]["culprit"]
    who = f": {of_ranks(culprit)}" if culprit else ""
    call = f" in {verdict['call']}" if who and verdict["call"] else ""
    return f"{verdict['outcome']}{at}{phase}{who}{call}"
