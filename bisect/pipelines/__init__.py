"""The pipelines, found by name. To add one: a module with a PIPELINE, and its name here."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ..bisection.flags import pipeline_of

if TYPE_CHECKING:
    from .pipeline import Pipeline

PIPELINES = ("startup", "generation", "finetuning", "replay")


def find(name: str) -> Pipeline:
    """Return the pipeline of that name, which must be one of PIPELINES.

    Imports that pipeline's table and steps alone, and none of the libraries it works with.
    """
    if name not in PIPELINES:
        raise KeyError(name)
    found: Pipeline = import_module(f".{name}", __package__).PIPELINE
    return found


def walked_by(command: Sequence[str]) -> Pipeline:
    """Return the pipeline that a command of ours walks; the first for a name that there is not,
    of which its ranks complain.
    """
    name = pipeline_of(command)
    return find(name if name in PIPELINES else PIPELINES[0])
