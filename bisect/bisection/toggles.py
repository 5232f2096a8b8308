"""The table of toggles: what can be changed about a run, from as it is run to safest.

Arguments, their help, what a verdict says to try, what a search turns off, what scenario files name
and the pages in docs/ all come from here. To add a toggle, add an entry to one of the modules
beside this one, and let the step that it belongs to read its argument, if it has one.
"""

from __future__ import annotations

from collections.abc import Iterable

from .component_toggles import DATA, FILES, HUB, MODEL, PROBES, STRATEGY, WANDB
from .environment_toggles import NETWORK, THREADS
from .finetuning_toggles import FINETUNING
from .generation_toggles import GENERATION
from .own_toggle import own_toggle as own_toggle
from .replay_toggles import REPLAY
from .toggle import AS_SET as AS_SET
from .toggle import Toggle as Toggle

TOGGLES: tuple[Toggle, ...] = (
    *(WANDB, STRATEGY, FILES),
    *(*HUB, *DATA, *MODEL),
    *GENERATION,
    *FINETUNING,
    *REPLAY,
    *(*NETWORK, *THREADS),
    *PROBES,
)


def toggles_of(pipeline: str) -> tuple[Toggle, ...]:
    """Return the toggles that matter to a pipeline of ours, as it has them."""
    return tuple(entry.read_by(pipeline) for entry in TOGGLES if pipeline in entry.pipelines)


def showing_races(table: Iterable[Toggle]) -> dict[str, str]:
    """Return what toggles are set to where a hang comes and goes: another value may hide a race."""
    return {entry.name: entry.shows_races for entry in table if entry.shows_races}


def toggle(name: str) -> Toggle:
    """Return the toggle of that name. Raises KeyError."""
    for entry in TOGGLES:
        if entry.name == name:
            return entry
    raise KeyError(name)
