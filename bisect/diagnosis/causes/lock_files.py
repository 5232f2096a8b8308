"""Files whose being there is a lock: left behind, or somebody's.

Those that the job's own code, or a library that we do not know, makes and waits for. Those of
torch's builds and of SoftFileLock are in locks.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...base.process_facts import AwaitedFile, Look
from ...base.words import format_seconds
from ..process.blocking_reason import find_awaited_file
from .known_cause import Found, KnownCause, Scene, also, need
from .locks import its_file_is_the_lock, waits_for_a_build

_SAME_TIME = 1.0  # seconds: when a wait began is known by looks, and by a clock of a file system
_TRUST_OVER_MACHINES = 0.4  # a process of another machine may own a file that both see
_TRUST_IN_PRESENCE = 0.6  # that a process was there when a file was made, makes it no owner


def _awaited_file(scene: Scene) -> AwaitedFile | None:
    """Return the file that the subject waits to disappear; of the builds of torch, and of what
    falls back to such files, other causes tell.
    """
    known = waits_for_a_build(scene) or its_file_is_the_lock(scene)
    if scene.view is None or scene.group is not None or known is not None:
        return None
    return find_awaited_file(scene.view)


def _waits_for_a_file_to_go(scene: Scene) -> Found | None:
    """A loop of a rank waits until a file is gone, or until it can make it anew."""
    file = _awaited_file(scene)
    if file is None:
        return None
    age = f", which is {format_seconds(file.age)} old" if file.age is not None else ""
    values = {"lock": file.path, "place": file.place}
    return Found(f"it waits in {file.place} until {file.path} is gone{age}", values)


def _nobody_here_owns_it(scene: Scene) -> Found | None:
    """No process of this machine has it open, the one that it names is gone, and it is as old as
    the wait, and older than all of the job that may have made it.
    """
    file = _awaited_file(scene)
    if file is None or file.owner is not None:
        return None
    note, remove, trust = "no process here has it open", f"rm {file.path}", 1.0
    if file.file_system:
        note += f", but it is on {file.file_system}: one of another machine may own it"
        remove = f"ask first on the other machines that see it, then {remove}"
        trust = _TRUST_OVER_MACHINES
    if file.maker is not None:
        words = f"{note}; it names process {file.maker}, which is gone"
        return Found(words, {"remove": remove}, trust)
    if file.age is None or file.age < _waited(scene) - _SAME_TIME or _may_have_made(scene, file):
        return None
    return Found(note, {"remove": remove}, trust)


def _waited(scene: Scene) -> float:
    """Return for how many seconds the subject has waited at the least."""
    looks = scene.subject.looks if scene.subject is not None else ()
    span = looks[-1].at - looks[0].at if looks else 0.0
    return max(span, scene.verdict.seconds.still or 0.0)


def _may_have_made(scene: Scene, file: AwaitedFile) -> tuple[Look, ...]:
    """Return the processes of the job on the subject's machine that were there when a file was made
    and do not wait for it themselves.
    """
    families = [looks for r in scene.neighbours for looks in (r.looks, *r.children) if looks]
    living = (looks for looks in families if looks[-1].state not in ("", "Z", "X"))
    made = _find_begin(
        (look.at, one.age)
        for look in (scene.subject.looks if scene.subject is not None else ())
        for one in look.awaited_files
        if one.path == file.path and one.age is not None
    )
    return tuple(
        looks[-1]
        for looks in living
        if _find_begin((look.at, look.age) for look in looks) <= made
        and all(one.path != file.path for one in looks[-1].awaited_files)
    )


def _find_begin(ages: Iterable[tuple[float, float]]) -> float:
    """Return when that began of which each look tells its age: the age is read after the look has
    begun, on a machine with much to do by seconds, so the latest is the nearest.
    """
    return max((at - age for at, age in ages), default=math.inf)


def _somebody_owns_it(scene: Scene) -> Found | None:
    """A living process has the file open, or is named in it, or was there when it was made."""
    file = _awaited_file(scene)
    if file is None:
        return None
    if file.holder is not None:
        who = f"{file.holder_name or 'process'} ({file.holder})"
        return Found(f"{who} has it open", {"owner": who, "pid": file.holder})
    if file.maker is not None:
        who = f"{file.maker_name or 'process'} ({file.maker})"
        values = {"owner": who, "pid": file.maker}
        return Found(f"it names {who}, which lives", values, 0.9) if file.maker_lives else None
    makers = _may_have_made(scene, file)
    if not makers:
        return None
    rank = scene.rank_of(makers[0].pid)
    who = f"{makers[0].name} ({makers[0].pid})" + (f", rank {rank}," if rank is not None else "")
    words = f"{who} was there when it was made, and may own it"
    return Found(words, {"owner": who, "pid": makers[0].pid}, _TRUST_IN_PRESENCE)


def _has_it_open(scene: Scene) -> Found | None:
    """The kernel says who has it open."""
    file = _awaited_file(scene)
    return Found("/proc shows it") if file is not None and file.holder is not None else None


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="lock-file-without-owner",
        title="a lock file is there that nobody here owns",
        signs=(
            need(_waits_for_a_file_to_go, 0.45),
            need(_nobody_here_owns_it, 0.5),
        ),
        why="In {place} it waits until {lock} is gone. That the file is there is the lock, and "
        "nothing removes it when its maker is killed; nobody on this machine owns it. Where other "
        "machines see the file, a process of another machine may.",
        avoid=(
            "{remove}",
            "look what it is first: `ls -l --time-style=full-iso {lock}; fuser -v {lock}`",
            "flock() on the file in place of its being there: the kernel frees it when its process "
            "ends",
        ),
        references=("ROCm/aiter#5269", "modelscope/modelscope#1778", "xorbitsai/inference#5130"),
    ),
    KnownCause(
        id="lock-file-of-another",
        title="a process waits until another one removes its lock file",
        signs=(
            need(_waits_for_a_file_to_go, 0.45),
            need(_somebody_owns_it, 0.45),
            also(_has_it_open, 0.2, proves=True),
        ),
        why="In {place} it waits until {lock} is gone, and {owner} most likely made it.",
        avoid=(
            "`ps -o pid,etime,stat,args -p {pid}` says what that is; look what it is at",
            "never remove a lock file whose owner lives: two would then believe that they have it",
        ),
        references=("ROCm/aiter#5269",),
    ),
)
