"""The first of our code in a Python below a watched command: it asks whether this may be a rank.

Most are none. So little is imported here, and what would say more only once a rank's variables are
there, or a library that we know is about to be imported.
"""

from __future__ import annotations

from .. import began as began  # it reads the clock: before any other import

# isort: split
import os
import sys

from ...base.command_words import is_resource_tracker
from ...base.launchers import RANK_VARIABLES
from ...base.process_roles import is_service_program, is_worker_program
from ...base.variables import (
    CAPTURE_VARIABLE,
    CLAIM_VARIABLE,
    PACKAGE_VARIABLE,
    PACKAGES,
    STEP_VARIABLE,
)
from ...base.variables import VARIABLE as STEER_VARIABLE
from ..after_import import before_import
from .programs import is_hangbisect, is_launcher, program, words_of_start

_PID = os.getpid()
_is_started_by_a_script = False  # by multiprocessing or Ray: a rank only if it joins a group
_waits: list[bool] = []  # whether this process may become a rank
_OF_MULTIPROCESSING = "--multiprocessing-fork"  # on what it spawns (multiprocessing/spawn.py)


def begin() -> None:
    """Become a rank's side of the watch, if this process is one; else wait whether it becomes one.

    Raises whatever goes wrong.
    """
    global _is_started_by_a_script
    words = words_of_start()
    what = program(sys.argv, words)
    # It has the variables of whoever started it, a rank's where a parent sets them for the next.
    if (
        is_resource_tracker(words)
        or is_launcher(what)
        or is_hangbisect(what, os.environ.get(PACKAGE_VARIABLE, ""))
    ):
        return
    if is_service_program(what):
        return
    # multiprocessing gives its child the words of the script before it imports anything of it.
    _is_started_by_a_script = is_worker_program(what) or _OF_MULTIPROCESSING in sys.argv
    if os.environ.get(STEER_VARIABLE):
        from .. import patches

        patches.begin_patching(patches.QUEUE)
    if os.environ.get(CLAIM_VARIABLE) or any(name in os.environ for name in RANK_VARIABLES):
        from . import rank_side

        if rank_side.take_role():
            return
    own = [word.partition(".")[0].partition(":")[0] for word in _own_words()]
    for package in {*PACKAGES, *own} - {"", "__main__"}:
        before_import(package, train)
    _waits.append(True)


def _own_words() -> list[str]:
    named = (os.environ.get(name, "") for name in (STEP_VARIABLE, CAPTURE_VARIABLE))
    return [word.strip() for text in named for word in text.split(",")]


def train() -> None:
    """A library that we know is about to be imported, or a step of the script's own begins: this
    process is more than a starter. Where it was decided otherwise nothing is done.
    """
    if not _waits:
        return
    try:
        from . import rank_side

        is_child = os.getpid() != _PID or _is_started_by_a_script
        rank_side.take_role_at_import(is_child, train)
    except Exception as error:
        from ...base.error_guard import raise_if_of_the_job

        raise_if_of_the_job(error)
        if os.environ.get("HANGBISECT_DEBUG"):
            sys.stderr.write(f"hangbisect: this rank is not watched: {error!r}\n")
