"""The pipelines, found by name. To add one: a module with a PIPELINE, and its name here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .pipeline import Pipeline

PIPELINES = ("startup",)


def find(name: str) -> Pipeline:
    """Return the pipeline of that name, which must be one of PIPELINES.

    Imports that pipeline's table and steps alone, and none of the libraries it works with.
    """
    if name not in PIPELINES:
        raise KeyError(name)
    found: Pipeline = import_module(f".{name}", __package__).PIPELINE
    return found
