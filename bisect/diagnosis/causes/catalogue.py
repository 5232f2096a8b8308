"""All known causes, and the one that a scene shows."""

from __future__ import annotations

from dataclasses import dataclass

from ...facts import Cause
from . import (
    awaited,
    compiling,
    crash,
    deadlock,
    endpoints,
    forks,
    gpu,
    interpreter,
    locks,
    membership,
    memory,
    mismatched,
    mpi,
    native,
    nccl,
    network,
    pipes,
    placement,
    processes,
    prompts,
    rendezvous,
    services,
    sleeping,
    slow,
    startup,
    storage,
    teardown,
    threads,
    timeouts,
    tools,
    workers,
)
from .known import KnownCause, likeliest
from .scene import Scene

_MODULES = (
    membership,
    rendezvous,
    network,
    services,
    prompts,
    startup,
    endpoints,
    locks,
    threads,
    forks,
    workers,
    awaited,
    mismatched,
    storage,
    pipes,
    processes,
    interpreter,
    native,
    mpi,
    sleeping,
    teardown,
    tools,
    slow,
    deadlock,
    placement,
    gpu,
    nccl,
    memory,
    crash,
    compiling,
    timeouts,
)


@dataclass(frozen=True)
class Family:
    """Causes that have something in common: one file, whose docstring says what."""

    name: str
    title: str
    causes: tuple[KnownCause, ...]


FAMILIES = tuple(
    Family(
        module.__name__.rpartition(".")[2],
        (module.__doc__ or "").partition("\n")[0].rstrip("."),
        module.CAUSES,
    )
    for module in _MODULES
)
CAUSES = tuple(cause for family in FAMILIES for cause in family.causes)


def matching(scene: Scene, failed: list[str] | None = None) -> list[Cause]:
    """Return every cause that the scene shows, the most confident first.

    A declaration that raises is left out, with a sentence in `failed`: no verdict is lost for it.
    """
    found = []
    for known in CAUSES:
        try:
            cause = known.match(scene)
        except Exception as error:
            if failed is not None:
                what = f"{type(error).__name__}: {error}"
                failed.append(f"the cause {known.id} could not be looked for ({what})")
        else:
            found += [cause] if cause is not None else []
    return sorted(found, key=lambda cause: (-cause.confidence, -len(cause.matched)))


def explain(scene: Scene, failed: list[str] | None = None) -> Cause | None:
    """Return the likeliest cause, None if none is likely enough to be said."""
    return likeliest(matching(scene, failed))


def by_id(name: str) -> KnownCause | None:
    """Return the declaration of a cause."""
    return next((cause for cause in CAUSES if cause.id == name), None)
