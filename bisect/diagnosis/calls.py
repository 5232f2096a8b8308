"""Which call a process is in, in which frame, and which component that is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..facts import Checkpoint, Frame, JobFacts, Look, RankFacts
from .entries import Entry, entries
from .frames import (
    dotted,
    is_injection,
    job_frames,
    module_of,
    owner,
    short,
    without_handlers,
    worded,
)
from .view import Seen, seen

_OWN = ("step", "user")
_DECORATOR = re.compile(r"_?inner(?:_fn)?|\w*wrapper|wrapped\w*|decorate\w*")

# What Python calls the system calls that it makes without a frame of its own. Only for calls
# that mean one thing: a futex may be any lock.
_PYTHON_NAMES = {
    "nanosleep": "time.sleep",
    "clock_nanosleep": "time.sleep",
    "flock": "fcntl.flock",
    "open": "open",
    "openat": "open",
    "openat2": "open",
    "recvfrom": "socket.socket.recv",
    "recvmsg": "socket.socket.recvmsg",
    "connect": "socket.socket.connect",
    "accept": "socket.socket.accept",
    "accept4": "socket.socket.accept",
    "wait4": "os.waitpid",
    "waitid": "os.waitid",
    "read": "os.read",
    "write": "os.write",
    "mkdir": "os.mkdir",
    "mkdirat": "os.mkdir",
    "fsync": "os.fsync",
    "epoll_wait": "select.epoll.poll",
    "epoll_pwait": "select.epoll.poll",
    "epoll_pwait2": "select.epoll.poll",
}


def call_of(look: Look, job: JobFacts, announced: str = "") -> str:
    """Return the dotted call that `look` shows, "" if neither the stack, the kernel nor
    `announced` (what the rank said it was about to call) tells.
    """
    view = seen((look,))
    return call_in(view, job, announced) if view else announced


def call_in(view: Seen, job: JobFacts, announced: str = "") -> str:
    """Return the innermost telling entry point on the stack; else the outermost library
    function that the innermost code of the job entered; else the C function it is in.
    """
    frames = job_frames(view.frames, job.package)
    for frame in frames:
        telling = next((e for e in entries(frame) if e.telling), None)
        if telling is not None:
            return telling.named(_widest(frame, telling, frames))
    outside = _outside_import(frames)
    own = next(
        (i for i in range(outside, len(frames)) if owner(frames[i], job.package) in _OWN),
        len(frames),
    )
    if own > outside:
        return _public(_called(frames[outside:own]))
    if outside:
        return _import(frames[:outside], announced)
    return _direct(view, frames, job, announced)


def _called(frames: Sequence[Frame]) -> Frame:
    """Return the function of a library that the job called: the outermost of `frames`, or what is
    inside the decorators around it.
    """
    at = len(frames) - 1
    while at and "<locals>" in frames[at].name and _DECORATOR.fullmatch(short(frames[at].name)):
        at -= 1
    return frames[at]


def _widest(frame: Frame, entry: Entry, frames: Sequence[Frame]) -> Frame:
    """Return the outermost frame of the same entry around `frame`, as far as the library goes:
    `from_pretrained` of the class that the job itself called.
    """
    found = frame
    for other in frames[frames.index(frame) + 1 :]:
        if entry.matches(other):
            found = other
        elif owner(other, "") not in ("library", "import"):
            break
    return found if "{class}" in entry.call else frame


def _outside_import(frames: Sequence[Frame]) -> int:
    """Return how many of `frames` (innermost first) run because something is being imported.

    A script that trains while it is imported is not importing, as far as anybody cares.
    """
    inside = max((i + 1 for i, f in enumerate(frames) if owner(f, "") == "import"), default=0)
    trains = any(e.container for f in frames[:inside] for e in entries(f))
    return 0 if trains else inside


def _import(frames: Sequence[Frame], announced: str) -> str:
    """Return "import NAME" for frames that end in the import machinery."""
    module = next((f for f in reversed(frames) if f.name == "<module>"), None)
    if module is not None:
        return f"import {module_of(module)}"
    return announced if announced.startswith("import ") else "import"


def _public(frame: Frame) -> str:
    named = next((e for e in entries(frame) if e.call), None)
    return named.named(frame) if named else dotted(frame)


def _direct(view: Seen, frames: Sequence[Frame], job: JobFacts, announced: str) -> str:
    """Return the call of a process whose innermost frame is the job's own: a C function."""
    if not frames:
        native = next((f.name for f in view.frames if f.native), "")
        return announced or native or view.call_name
    for frame in frames[1:]:
        enclosing = next((e for e in entries(frame) if e.container), None)
        if enclosing is not None:
            return enclosing.named(frame)
    inner = frames[0]
    if announced and owner(inner, job.package) == "step":
        return announced
    if not view.holds_gil and view.call_name in _PYTHON_NAMES:
        return _PYTHON_NAMES[view.call_name]
    return dotted(inner)


def frame_of(look: Look, package: str = "") -> str | None:
    """Return the innermost Python frame as "Condition.wait (threading.py:327)", None without."""
    main = look.main
    frames = without_handlers(main.frames) if main else ()
    return innermost(frames)


def innermost(frames: Sequence[Frame]) -> str | None:
    """Return the innermost Python frame in words, None if there is none."""
    return next((worded(f) for f in frames if not f.native), None)


def component_of(
    view: Seen | None, facts: RankFacts | None, job: JobFacts, checkpoint: Checkpoint | None
) -> str | None:
    """Return the component: of the innermost known call, else of the phase, else of the
    checkpoint.

    A collective or a sleep that the job's own callback makes is the callback's, for that is
    what would have to change.
    """
    frames = job_frames(view.frames, job.package) if view else ()
    if any(is_injection(f, job.package) for f in frames):
        frames = ()  # made to hang at a place: it is that place's, whatever called it there
    for frame in frames:
        found = next((e for e in entries(frame) if e.component), None)
        if found and not (found.collective and _called_by_the_job(frame, frames, job.package)):
            return found.component
    if view is None and facts is not None and _ended_in_a_collective(facts):
        return "strategy"
    phases = checkpoint.phases if checkpoint else ()
    phase = facts.phase if facts else None
    by_phase = next((p.component for p in phases if p.name == phase), None)
    return by_phase or (checkpoint.component if checkpoint else "") or None


def _ended_in_a_collective(facts: RankFacts) -> bool:
    """Return True if the log of a rank that is gone ends in a collective that it never left: gloo
    aborts a rank that gets more than it has room for, and there is no traceback then.
    """
    operations = [o for log in facts.collectives if log.source == "ring" for o in log.operations]
    last = max((o for o in operations if o.group), key=lambda one: one.at, default=None)
    return facts.left and last is not None and last.done is False


def _called_by_the_job(frame: Frame, frames: Sequence[Frame], package: str) -> bool:
    """Return True if a user's hook called `frame`, with only torch's wrappers in between."""
    for other in frames[frames.index(frame) + 1 :]:
        if "torch/distributed/" in other.file or short(other.name) == "wrapper":
            continue
        return owner(other, package) == "user" and _within_hook(other, frames)
    return False


def _within_hook(frame: Frame, frames: Sequence[Frame]) -> bool:
    outside = frames[frames.index(frame) + 1 :]
    return any(e.component == "callbacks" for f in outside for e in entries(f))
