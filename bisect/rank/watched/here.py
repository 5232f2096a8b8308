"""The role that this process takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from ..claims import DIALECTS, number
from ..place import FOLDER_VARIABLE, JOB_VARIABLE, Place, find_place, job_of_this_process
from .captured import classes
from .failing import listen
from .names import CAPTURE_VARIABLE, CLAIM_VARIABLE, STEP_VARIABLE
from .own_functions import own_rows
from .rank_side import PROCESS_GROUP, RankSide
from .role import Role, Seen, read_claim, role
from .table import TABLE

CURRENT: RankSide | None = None  # of this process


def begin() -> bool:
    """Put in place what this process needs, and say hello if it is a rank already. Return False if
    it may become one as soon as it imports a library that we know.
    """
    place, found = _look()
    if found is Role.HELPER:  # spawned, perhaps to be a rank
        _be_a_helper()
    elif found is Role.RANK:
        _be_a_rank(place, trains=False)
    return found in (Role.HELPER, Role.NONE)


def train(is_child: bool, heard: Callable[[], None]) -> None:
    """A library that we know is about to be imported: from now on this is a rank, unless it
    `is_child` of a Python that imported none: one of several, perhaps. `heard` is what called us,
    and waits for other libraries.
    """
    if CURRENT is not None:
        if not is_child:
            CURRENT.claim(trains=True)
    elif is_child:
        _be_a_helper()
    else:
        _be_a_rank(_look()[0], trains=True)
    if CURRENT is not None:
        CURRENT.waiting.append(heard)


def _be_a_helper() -> None:
    global CURRENT
    CURRENT = RankSide(is_helper=True)
    CURRENT.install(row for row in TABLE if row.step == PROCESS_GROUP)


def _be_a_rank(place: Place, trains: bool) -> None:
    global CURRENT
    CURRENT = side = RankSide(is_helper=False)
    if os.environ.get(JOB_VARIABLE, place.job) != place.job:
        # Another job's: whoever started our launcher left them in its environment.
        del os.environ[JOB_VARIABLE]
        os.environ.pop(FOLDER_VARIABLE, None)
    place = find_place()
    if place.launcher is None and not place.joined:
        place = replace(place, job=job_of_this_process())
    # Before the log of collectives, which counts the frames between it and the script.
    side.install(TABLE)
    side.install_own(own_rows(os.environ.get(STEP_VARIABLE, "")))
    side.install_captures(classes(os.environ.get(CAPTURE_VARIABLE, "")))
    side.count_steps()
    side.speak(place, trains, is_certain=place.launcher is not None or place.joined)

    def failed(error: BaseException) -> None:
        if side.voice is not None and os.getpid() == side.pid:
            side.voice.failed(error)

    listen(failed)


def _look() -> tuple[Place, Role]:
    """Return where this process stands, and what it is."""
    launched = any(number(os.environ, names[0]) is not None for names in DIALECTS.values())
    joined = bool(os.environ.get(FOLDER_VARIABLE) and os.environ.get(JOB_VARIABLE))
    ours = {FOLDER_VARIABLE, JOB_VARIABLE} if launched else set()
    place = find_place({name: value for name, value in os.environ.items() if name not in ours})
    seen = Seen(
        pid=os.getpid(),
        parent=os.getppid(),
        claim=read_claim(os.environ.get(CLAIM_VARIABLE, "")),
        launched=launched and place.launcher is not None,
        joined=joined,
        numbered="LOCAL_RANK" in os.environ,
        job=place.job,
        rank=place.rank,
        launcher=place.launcher_pid,
    )
    return place, role(seen)
