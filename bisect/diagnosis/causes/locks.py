"""Lock files and locks on files: left behind, held by somebody else, or not to be had at all.

Here are locks of the kernel (flock, fcntl) and the lock files of libraries that we know (builds of
torch, SoftFileLock). Lock files that any other code makes are in lock_files.py.
"""

from __future__ import annotations

import re

from ...base.library_functions import Role, find_role, has_role
from ...base.lock_polls import find_lock_poll, find_told_lock_path
from ...base.process_facts import FileLock, Frame
from ...base.rank_facts import RankFacts
from ...base.words import format_ranks, format_seconds
from ..process.blocked_syscalls import SLEEP_CALLS
from ..process.frames import format_frame
from ..process.public_calls import describe_build
from ..process.time_limits import read_lock_limit
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import THREAD_POOL_WAIT_FILES

_SQLITE = r"/(?:lib\w*sqlite3?|_sqlite3)\b[^/]*\.so|/(?:sqlite3|aiosqlite|sqlalchemy|diskcache)/"
_DATA_BASES = r"\.(?:db3?|sqlite3?)(?:-\w+)?$"
_HUB = r"huggingface_hub/(?:utils/_fixes|file_download|_snapshot_download)\.py"
_METRIC = r"(?:datasets/metric|evaluate/module)\.py"
_NO_LOCKS = r"No locks available|\[Errno 37\]|ENOLCK|[Ff]alling back to SoftFileLock"


# ---- builds of torch extensions: the file itself is the lock -------------------------------------


def waits_for_a_build(scene: Scene) -> Found | None:
    """A rank waits in FileBaton.wait (torch/utils/file_baton.py)."""
    frame = find_role(scene.frames, Role.AWAITS_BUILD)
    if frame is None:
        return None
    return Found(f"it waits in {format_frame(frame)}", {"lock": _build_lock(scene)})


def _build_lock(scene: Scene) -> str:
    stale = _stale(scene)
    if stale is not None:
        return stale.path
    return find_told_lock_path(scene.frames) or "`lock` in the folder of the build"


def _stale(scene: Scene) -> FileLock | None:
    """Return the file that the subject waits for and that no process has open."""
    looks = scene.subject.looks if scene.subject else ()
    return next((lock for look in reversed(looks) for lock in look.stale_locks), None)


def _somebody_builds(scene: Scene) -> Found | None:
    """A rank is building: it has a compiler among its children, or is in the build's code."""
    for facts in scene.living:
        if by := describe_build(facts):
            words = f"rank {facts.rank} is building: {by}"
            return Found(words, {"builder": facts.rank, "by": by})
    return None


def _nobody_builds(scene: Scene) -> Found | None:
    """No rank is building."""
    return None if _somebody_builds(scene) else Found("no rank is building an extension")


def _nobody_has_it(scene: Scene) -> Found | None:
    """The lock file is there, and no process has it open."""
    lock = _stale(scene)
    if lock is None:
        return None
    old = f", is {lock.age:.0f} s old" if lock.age is not None else ""
    return Found(f"{lock.path} is there{old}, and no process has it open", {"lock": lock.path})


def _older_than_the_rank(scene: Scene) -> Found | None:
    """The lock file is older than the process that waits for it."""
    lock = _stale(scene)
    if lock is None or lock.age is None or scene.view is None:
        return None
    return Found("it is older than the job") if lock.age > scene.view.look.age else None


def _somebody_has_it_open(scene: Scene) -> Found | None:
    """A living process has the lock file open."""
    lock = _held(scene)
    if lock is None or not lock.path.endswith("/lock"):
        return None
    return Found(f"{lock.holder_name} ({lock.holder}) has {lock.path} open")


def _ranks_wait_for_a_build(scene: Scene) -> Found | None:
    """Ranks wait in FileBaton.wait for another one's build."""
    waiting = scene.ranks_with(Role.AWAITS_BUILD)
    if not waiting:
        return None
    verb = "waits" if len(waiting) == 1 else "wait"
    return Found(f"{format_ranks(waiting)} {verb} in FileBaton.wait")


# ---- locks on files ------------------------------------------------------------------------------


def _polling(scene: Scene) -> tuple[Frame, ...]:
    """Return the frames with which the subject, or a thread for which it waits, asks for a lock
    again and again; () if none does.
    """
    stacks = [scene.frames]
    if scene.call == "futex" and scene.inside(THREAD_POOL_WAIT_FILES) and scene.view is not None:
        stacks += [thread.frames for thread in scene.view.threads]
    return next(filter(_polls_file_lock, stacks), ())


def _polls_file_lock(frames: tuple[Frame, ...]) -> bool:
    """Return True if `frames` poll a lock on a file, which is not that the file is there."""
    frame = find_lock_poll(frames)
    return frame is not None and not has_role(frame.file, frame.name, Role.AWAITS_BUILD)


def _asks_for_a_file_lock(scene: Scene) -> Found | None:
    """A rank waits in flock() or fcntl(), or asks for a lock on a file again and again (filelock,
    SQLite).
    """
    frames, lock = _polling(scene), _held(scene)
    frame = find_lock_poll(frames)
    if frame is not None:
        words = f"it asks for a lock in {format_frame(frame)}" + _say_limit(scene, frames)
        return Found(words, {"lock": _find_lock_path(scene, frames)})
    if scene.call in ("flock", "fcntl") and (lock is None or lock.waiting):
        path = lock.path if lock is not None else _named(scene)
        return Found(f"it waits in {scene.call}() for {path}", {"lock": path})
    return _sqlite_is_busy(scene)


def _say_limit(scene: Scene, frames: tuple[Frame, ...]) -> str:
    """Return in words for how long it is asked for at the most, "" if without a limit."""
    look = scene.view.look if scene.view is not None and frames == scene.frames else None
    limit = read_lock_limit(look) if look is not None else None
    return f", for {format_seconds(limit)} at the most" if limit is not None else ""


def _sqlite_is_busy(scene: Scene) -> Found | None:
    """Return the data base that SQLite wants to lock: it sleeps between two tries
    (sqlite3_busy_timeout), and no system call says for what.
    """
    lock = _held(scene)
    if scene.call not in SLEEP_CALLS or lock is None or scene.group is not None:
        return None
    inside = next((f for f in scene.inner if re.search(_SQLITE, f.file)), None)
    if inside is None and not re.search(_DATA_BASES, lock.path):
        return None
    where = f", in {format_frame(inside)}" if inside is not None and not inside.native else ""
    return Found(f"SQLite asks for {lock.path} again and again{where}", {"lock": lock.path})


def _find_lock_path(scene: Scene, frames: tuple[Frame, ...]) -> str:
    """Return the path of the lock file that `frames` ask for."""
    held, stale = _held(scene), _stale(scene)
    if held is not None or stale is not None:
        return (held or stale).path  # type: ignore[union-attr]  # one of them is
    return find_told_lock_path(frames) or "a lock file"


def _named(scene: Scene) -> str:
    call = scene.view.call if scene.view else None
    return next((d.path for d in (call.descriptors if call else ()) if d.path), "a file")


def _held(scene: Scene) -> FileLock | None:
    """Return the lock that the subject wants, of which the kernel says who has it."""
    looks = scene.subject.looks if scene.subject else ()
    known = [lock for look in reversed(looks) for lock in look.locks if lock.holder is not None]
    wanted = [lock for lock in known if lock.waiting]
    # Of a path a part may be masked; what is asked for is told from other files by its name.
    folder = find_told_lock_path(_polling(scene)).rpartition("/")[2]
    named = [lock for lock in known if folder and lock.path.endswith(folder)]
    found = next(iter(wanted or named or known), None)
    wait = scene.verdict.waits_for
    if found is None and wait is not None and wait.kind == "lock" and wait.pid is not None:
        return FileLock(wait.what or wait.detail, 0, wait.pid, wait.process or "")
    return found


def _a_process_has_it(scene: Scene) -> Found | None:
    """A living process has the lock."""
    lock = _held(scene)
    if lock is None:
        return None
    wait = scene.verdict.waits_for
    rank = scene.rank_of(lock.holder, wait.host if wait and wait.pid == lock.holder else "")
    name = lock.holder_name or "process"
    who = f"{name} ({lock.holder})" + (f", which is rank {rank}" if rank is not None else "")
    values = {"holder": who, "pid": lock.holder, "lock": lock.path}
    return Found(f"{who} has {lock.path or 'it'}", values)


def _waits_for_us_in_turn(scene: Scene) -> Found | None:
    """Who has the lock waits, in turn, for the rank that wants it."""
    culprits = set(scene.verdict.ranks.culprit)
    rings = scene.graph.deadlocks if scene.graph is not None else ()
    return Found("it is part of a ring") if any(r.ranks & culprits for r in rings) else None


def _nobody_here_can_have_it(scene: Scene) -> Found | None:
    """No process of this machine has its file open, or there are no locks to be had."""
    if _held(scene) is not None:
        return None
    return _nobody_has_it(scene) or _no_locks_to_be_had(scene)


def its_file_is_the_lock(scene: Scene) -> Found | None:
    """It is a SoftFileLock: that the file is there is the lock."""
    for frame in scene.frames[:8]:
        if "SoftFileLock" in dict(frame.locals).get("self", "") or "SoftFileLock" in frame.name:
            return Found("it is a SoftFileLock: the file itself is the lock")
    fell_back = scene.wrote(r"[Ff]alling back to SoftFileLock", _subjects(scene))
    return Found("it wrote that it falls back to SoftFileLock") if fell_back else None


def _no_locks_to_be_had(scene: Scene) -> Found | None:
    """It wrote that the file system has no locks (ENOLCK, "No locks available")."""
    found = scene.wrote(_NO_LOCKS, _subjects(scene))
    return Found(f'it wrote "{found[1][0]}"') if found else None


def _subjects(scene: Scene) -> tuple[RankFacts, ...]:
    return (scene.subject,) if scene.subject else ()


def _in_the_hub_client(scene: Scene) -> Found | None:
    """The lock is one of the hub's cache."""
    frame = scene.frame(_HUB)
    return Found(f"frame {format_frame(frame)}") if frame is not None else None


def _meets_by_lock_files(scene: Scene) -> Found | None:
    """A rank waits for the lock files of all processes of a metric (datasets, evaluate)."""
    frame = scene.frame(_METRIC, r"_check_all_processes_locks|_check_rendez_vous")
    return None if frame is None else Found(f"it waits in {format_frame(frame)}")


def _not_all_compute_it(scene: Scene) -> Found | None:
    """Other ranks are not in that metric."""
    inside = scene.ranks_in(_METRIC)
    missing = tuple(r.rank for r in scene.living if r.rank not in inside)
    if not missing:
        return None
    who, verb = format_ranks(missing), "is" if len(missing) == 1 else "are"
    return Found(f"{who} {verb} not in it", {"missing": who})


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="stale-build-lock",
        title="a killed build of a torch extension left its lock file behind",
        signs=(
            need(waits_for_a_build, 0.6),
            need(_nobody_builds, 0.35),
            also(_nobody_has_it, 0.75, proves=True),
            also(_older_than_the_rank, 0.5),
            unless(_somebody_has_it_open),
        ),
        why="torch waits until {lock} disappears. Whoever made it was ended before it was done, so "
        "it never will.",
        avoid=("rm {lock}", "a TORCH_EXTENSIONS_DIR of its own for each job: it builds anew"),
        references=("pytorch/pytorch#189245", "pytorch/pytorch#59146", "zhou13/neurvps#1"),
    ),
    KnownCause(
        id="build-in-progress",
        title="one rank builds a torch extension, and the others wait for it",
        signs=(need(_ranks_wait_for_a_build, 0.55), need(_somebody_builds, 0.65)),
        why="Rank {builder} builds the extension ({by}); the others wait until its lock file is "
        "gone. A first build takes minutes.",
        avoid=(
            "wait, as long as the compiler is at work",
            "build it once before the ranks start: later starts find it in TORCH_EXTENSIONS_DIR",
        ),
        references=("radixark/miles#3158", "pytorch/pytorch#189245"),
        outcomes=("slow", "hang", "interrupted"),
    ),
    KnownCause(
        id="file-lock-held",
        title="another process has the lock on a file",
        signs=(
            need(_asks_for_a_file_lock, 0.6),
            need(_a_process_has_it, 0.75, proves=True),
            also(_in_the_hub_client, 0.2),
            unless(waits_for_a_build),
            unless(_waits_for_us_in_turn),
        ),
        why="It waits until {holder} gives up the lock on {lock}.",
        avoid=(
            "`ps -o pid,etime,stat,args -p {pid}` says what has it; end it if it is a leftover",
            "a cache on a local disk for each job (HF_HOME, TRITON_CACHE_DIR, ...): fills anew",
            "never remove a lock file that somebody has: two would then believe that they have it",
        ),
        references=(
            "huggingface/huggingface_hub#2543",
            "deepspeedai/DeepSpeed#5205",
            "huggingface/transformers#8234",
        ),
    ),
    KnownCause(
        id="lock-file-left",
        title="a lock file was left behind by a process that is gone (SoftFileLock)",
        signs=(
            need(_asks_for_a_file_lock, 0.35),
            need(its_file_is_the_lock, 0.4),
            also(_nobody_has_it, 0.7, proves=True),
            also(_older_than_the_rank, 0.4),
            unless(_a_process_has_it),
        ),
        why="Where a file system has no locks, the package filelock takes the file {lock} itself "
        "for the lock. Who made it is gone, so nobody removes it.",
        avoid=("rm {lock}", "HF_HOME (or that cache) on a local disk, which has real locks"),
        references=(
            "huggingface/huggingface_hub#2543",
            "huggingface/huggingface_hub#2399",
            "LetheSec/HuggingFace-Download-Accelerator#30",
        ),
    ),
    KnownCause(
        id="lock-not-to-be-had",
        title="the file system gives no locks, or another machine has the lock",
        signs=(
            need(_asks_for_a_file_lock, 0.35),
            need(_nobody_here_can_have_it, 0.35),
            also(_no_locks_to_be_had, 0.65, proves=True),
            unless(its_file_is_the_lock),
            unless(waits_for_a_build),
        ),
        why="It asks for {lock} again and again, and nobody on this machine has it: either a "
        "process of another machine does, or the file system (NFS, DBFS) has no locks.",
        avoid=(
            "HF_HOME, HF_DATASETS_CACHE (or that cache) on a local disk",
            "`findmnt -T {lock}` says which file system it is",
        ),
        references=("huggingface/datasets#3983", "huggingface/datasets#1672"),
    ),
    KnownCause(
        id="metric-lock",
        title="only some ranks compute a metric that all ranks meet in",
        signs=(need(_meets_by_lock_files, 0.7), also(_not_all_compute_it, 0.6)),
        why="A distributed metric of datasets or evaluate waits for the lock files of all "
        "processes; {missing} never came there.",
        avoid=(
            "call metric.compute() on every rank, not below `if rank == 0`",
            "load the metric without num_process, and gather the predictions first",
        ),
        references=("huggingface/datasets#1942", "huggingface/evaluate#481"),
    ),
)
