"""What a scenario file names, as a job to isolate: its cells are not looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..bisection.toggle import Toggle
from ..bisection.toggles import TOGGLES


@dataclass(frozen=True)
class Named:
    """What is to be started, and what is wished for it where the command line says nothing."""

    command: tuple[str, ...]
    ours: bool = False  # it walks a pipeline of ours
    environment: Mapping[str, str] = field(default_factory=dict)  # beside our own
    watch: Mapping[str, str] = field(default_factory=dict)
    table: tuple[Toggle, ...] = TOGGLES
    wishes: Mapping[str, Any] = field(default_factory=dict)
    mark: str = ""  # of what a file says of the job: two that differ cannot share their starts


def of_file(word: str) -> Named:
    """Return what the scenario file `word` (a path, or the name of one of ours) names.

    Raises UsageError for a file that is not right, scenario_file.Missing where what reads it is not
    installed.
    """
    from . import scenario_file

    scenario = scenario_file.load(word)
    from ..bisection.cells import cells
    from ..bisection.scenario_toggles import toggles
    from .matrix_launch import Around, launch, mark

    (whole,) = cells(scenario.model_copy(update={"settings": (), "axes": {}}))
    table = toggles(scenario)
    watch = scenario.watch.options()
    started = launch(whole, Around(table, watch, Path(), Path()), {})
    # The watch and the limit may be changed while one isolates.
    same_job = mark(replace(whole, limit=0.0), Around(table, {}, Path(), Path()))
    asked = scenario.isolate
    return Named(
        command=started.command,
        ours=whole.pipeline is not None,
        environment=started.environment,
        watch=watch,
        table=table,
        wishes={
            "only": asked.only,
            "without": asked.without,
            "max_trials": asked.max_trials,
            "max_time": asked.max_time,
            "confirm": asked.confirm,
            "confidence": asked.confidence,
            "limit": scenario.limit,
        },
        mark=same_job,
    )
