"""The processes of Ray, by their command lines: what serves the cluster (raylet, gcs_server,
agents, the dashboard), what runs actors and tasks, and what an actor is called. Pure.

A worker gives itself a title with what it runs: "ray::Trainer.train" in a method, "ray::Trainer"
between two, "ray::IDLE" without an actor (ray/_private/worker.py, python/ray/_raylet.pyx).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Ray's own folder holds all programs of it; its workers run this one.
_WORKER = re.compile(r"(?:^|/)ray/_private/workers/(?:default_worker|setup_worker)\.py$")
_SERVICE = re.compile(
    r"(?:^|/)ray/(?:core/src/ray/(?:gcs/gcs_server|raylet/raylet)$"
    r"|(?:dashboard|autoscaler|_private|util/client|experimental)/\S*\.py$)"
)
# Actors that Ray itself starts beside those of a job: they manage, and wait for nobody's data.
_MANAGERS = (
    "_AutoscalingCoordinatorActor|AutoscalingRequester|PlacementGroupCleaner|SynchronizationActor"
    "|DatasetManager|PreemptionWatcher|_StatsActor|JobSupervisor|DashboardAgent|RuntimeEnvAgent"
)
_SERVICE_TITLE = re.compile(
    rf"^(?:ray::(?:IDLE\w*|SPILL\w*|RESTORE\w*|(?:{_MANAGERS})(?:\.\w+)?)$|ray-dashboard\b)"
)
TITLE = "ray::"  # with which those of its workers begin
_MOST_WORDS = 6  # of a command line, in which a program stands: Python's own flags come before it
RAYLET = "raylet"  # as the kernel has the name of the process (comm)
# The kernel's names of processes of which one is there wherever Ray runs.
NAMES = (RAYLET, "gcs_server")


def is_worker_program(program: str) -> bool:
    """Return whether a Python that runs this program is to run Ray's actors or tasks."""
    return bool(_WORKER.search(program))


def is_service_program(program: str) -> bool:
    """Return whether a program serves Ray's cluster, and runs no code of the job."""
    return bool(_SERVICE.search(program)) and not is_worker_program(program)


def is_service(words: Sequence[str]) -> bool:
    """Return whether a process, by its command line, serves Ray's cluster or is a worker without
    work: it runs no code of the job, and is never a rank.
    """
    if any(is_service_program(word) for word in words[:_MOST_WORDS]):
        return True
    return bool(words) and bool(_SERVICE_TITLE.match(words[0].strip()))


def is_worker(words: Sequence[str]) -> bool:
    """Return whether a process, by its command line, runs an actor or a task, or is about to."""
    return bool(find_actor(words)) or any(is_worker_program(one) for one in words[:_MOST_WORDS])


def find_actor(words: Sequence[str]) -> str:
    """Return what a worker of Ray runs, as its title says: "Trainer.train", "Trainer" between two
    methods; "" for any other process.
    """
    title = words[0].strip() if words else ""
    if not title.startswith(TITLE) or _SERVICE_TITLE.match(title):
        return ""
    return title.removeprefix(TITLE).removesuffix("()")


def runs_method(actor: str) -> bool:
    """Return whether an actor, as `find_actor` has it, is in a method of its own."""
    return "." in actor
