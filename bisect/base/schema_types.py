"""Types of fields that tell a schema more than Python's own do (docs/make_schemas.py)."""

from __future__ import annotations

from typing import Annotated

from .identity import RankId

# What a schema says beside the type, as its keywords.
Natural = Annotated[int, ("minimum", 0)]
Ordinal = Annotated[int, ("minimum", 1)]
Duration = Annotated[float, ("minimum", 0)]
Share = Annotated[float, ("minimum", 0), ("maximum", 1)]
RankSet = Annotated[tuple[RankId, ...], ("uniqueItems", True)]
Component = Annotated[str, "one that a table of steps names"]
INSIDE = {"json": False}  # metadata of a field that no file has
