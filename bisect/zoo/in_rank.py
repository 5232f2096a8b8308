"""For functions of a case that run in a rank, in place of a pipeline's step (--use)."""

from __future__ import annotations

import os
from typing import Any

from ..base.pipeline import find_pipeline
from .case import ROLES


def run_usual_step(given: Any) -> Any:
    """Do the step that is under way as the pipeline does it, and return its product.

    `given` is what a function of --use gets: `args`, `context`, and the products of earlier steps.
    """
    name = given.context.step.name
    step = next(s for s in find_pipeline(given.args.pipeline).steps if s.checkpoint.name == name)
    return step.run(given.context)


def rank_number(given: Any) -> int:
    """Return which rank of the case this one plays, whatever RANK says: itself, but in a world of
    another size (case.place_in_world).
    """
    number: int = given.context.place.rank
    roles = os.environ.get(ROLES)
    return int(roles.split(",")[number]) if roles else number
