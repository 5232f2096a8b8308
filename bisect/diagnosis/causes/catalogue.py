"""All known causes, and the one that a scene shows."""

from __future__ import annotations

from types import ModuleType

from ...base.lazy_dataclass import dataclass
from ...base.verdict_facts import Cause, Verdict
from . import (
    actors,
    awaited,
    clocks,
    crash,
    deadlock,
    ended_writers,
    endpoints,
    event_loops,
    forks,
    gpu,
    gpu_errors,
    interpreter,
    lock_files,
    locks,
    membership,
    memory,
    mismatched,
    nccl_messages,
    network,
    other_runtimes,
    pipes,
    preloaded,
    processes,
    prompts_and_debuggers,
    queues,
    rendezvous,
    rounds,
    services,
    sleeping,
    slow,
    startup,
    storage,
    teardown,
    threads,
    timeouts,
    workers,
)
from .known_cause import KnownCause, Scene, choose_likeliest


@dataclass(frozen=True)
class CauseFamily:
    """Causes that have something in common."""

    name: str
    title: str
    causes: tuple[KnownCause, ...]


def _family_of(module: ModuleType) -> CauseFamily:
    """Return the family that a file is named after: the first line of its docstring says what."""
    name = module.__name__.rpartition(".")[2]
    title = (module.__doc__ or "").partition("\n")[0].rstrip(".")
    return CauseFamily(name, title, module.CAUSES)


FAMILIES = (
    _family_of(membership),
    _family_of(rendezvous),
    _family_of(network),
    _family_of(clocks),
    _family_of(services),
    CauseFamily(
        "prompts",
        "Questions on a terminal that nobody sees or answers",
        prompts_and_debuggers.PROMPT_CAUSES,
    ),
    _family_of(startup),
    _family_of(endpoints),
    _family_of(locks),
    _family_of(lock_files),
    _family_of(threads),
    _family_of(event_loops),
    _family_of(forks),
    _family_of(workers),
    _family_of(awaited),
    _family_of(mismatched),
    _family_of(rounds),
    _family_of(storage),
    _family_of(pipes),
    _family_of(ended_writers),
    _family_of(queues),
    _family_of(processes),
    _family_of(interpreter),
    CauseFamily(
        "native",
        "Native code that does not come back: a C function that waits, a signal, a loop without an"
        " end",
        interpreter.NATIVE_CAUSES,
    ),
    _family_of(preloaded),
    CauseFamily(
        "mpi",
        "MPI that is asked for although nobody started the ranks with it",
        other_runtimes.MPI_CAUSES,
    ),
    _family_of(sleeping),
    _family_of(teardown),
    CauseFamily(
        "tools",
        "Tools and settings for debugging that are the cause themselves",
        prompts_and_debuggers.DEBUGGER_CAUSES,
    ),
    _family_of(slow),
    _family_of(deadlock),
    _family_of(actors),
    CauseFamily(
        "engines",
        "Inference servers: engines that wait for their workers, ports that are taken",
        other_runtimes.SERVER_CAUSES,
    ),
    _family_of(gpu),
    _family_of(gpu_errors),
    CauseFamily(
        "nccl",
        "NCCL: making its communicator, and the first data between GPUs",
        gpu.NCCL_CAUSES,
    ),
    _family_of(nccl_messages),
    _family_of(memory),
    _family_of(crash),
    CauseFamily(
        "compiling",
        "Compilation that fails: what runs as it is, and not through torch.compile",
        crash.COMPILATION_CAUSES,
    ),
    _family_of(timeouts),
)
CAUSES = tuple(cause for family in FAMILIES for cause in family.causes)


def match_causes(scene: Scene, failed: list[str] | None = None) -> list[Cause]:
    """Return every cause that the scene shows, that whose signs agree most first.

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
    return sorted(found, key=lambda cause: (-cause.agreement, -len(cause.matched)))


def find_likeliest_cause(scene: Scene, failed: list[str] | None = None) -> Cause | None:
    """Return the likeliest cause, None if none is likely enough to be said."""
    return choose_likeliest(match_causes(scene, failed))


def find_known_cause(name: str) -> KnownCause | None:
    """Return the declaration of a cause."""
    return next((cause for cause in CAUSES if cause.id == name), None)


def choose_advice(verdict: Verdict) -> str:
    """Return what to change, "" if nothing is known: what avoids the cause before what is safer in
    general.
    """
    cause = verdict.cause
    known = find_known_cause(cause.id) if cause else None
    has_a_toggle = known is not None and bool(known.toggles)
    if cause is not None and cause.avoid and not (has_a_toggle and verdict.try_):
        return cause.avoid[0]
    return verdict.try_[0].command if verdict.try_ else ""
