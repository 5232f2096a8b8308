"""For functions of a case that run in a rank, in place of a pipeline's step (--use)."""

from __future__ import annotations

from typing import Any

from ..base.pipeline import find_pipeline


def run_usual_step(given: Any) -> Any:
    """Do the step that is under way as the pipeline does it, and return its product.

    `given` is what a function of --use gets: `args`, `context`, and the products of earlier steps.
    """
    name = given.context.step.name
    step = next(s for s in find_pipeline(given.args.pipeline).steps if s.checkpoint.name == name)
    return step.run(given.context)


def rank_number(given: Any) -> int:
    """Return which rank this is, whatever the environment says of it."""
    number: int = given.context.place.rank
    return number
