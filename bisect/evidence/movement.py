"""What moved between looks. Pure: facts in, sentences out.

Progress is a new place in the code, or payload: bytes of what is waited for, or so many bytes that
nobody polls with them. No progress is the same few places, a heartbeat, a store asked again, a
program started over and over. CPU alone is none either: see `busy`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..facts import Descriptor, Kernel, Look, Sample
from .syscalls import words
from .traffic import speed, traffic

# (kind, frames as (file, name, line)). Kinds: "main" and "thread" of Python, "kernel" for the main
# thread where Python's is not seen, "file": what its system call is about, "process" for a child:
# its command line.
Code = tuple[str, str, int]
Place = tuple[str, tuple[Code, ...]]

# Functions that ask for a lock again and again: the end of a file's path, and the name.
_ASKS_AGAIN = (
    ("/filelock/_api.py", "acquire"),  # filelock: what the Hugging Face libraries and torch take
    ("/filelock/_api.py", "_poll_until_acquired"),
    ("/torch/utils/file_baton.py", "wait"),  # an extension that another process builds
)

_NO_LINE = -1
BUSY_SHARE = 0.5  # of one core

# Calls in which the main thread may wait for other threads of its process. In another one (recv,
# read, flock, wait4 ...) it waits for something else, and what its helpers do is no progress.
_WAITS_FOR_THREADS = words(
    "futex nanosleep clock_nanosleep epoll_wait epoll_pwait epoll_pwait2 select pselect6"
)


@dataclass(frozen=True)
class Movement:
    """What one process did between two looks."""

    seconds: float
    new_places: frozenset[Place] = frozenset()
    share: float = 0.0  # CPU, of one core
    traffic: tuple[str, ...] = ()  # "reads 41 MB/s", "receives 3 bytes/s from 127.0.0.1:8000"

    @property
    def progress(self) -> bool:
        """Return True if this is more than polling or burning CPU."""
        return bool(self.new_places or self.traffic)

    @property
    def text(self) -> str:
        """Return what it did, without a subject; "" for nothing."""
        parts = list(self.traffic)
        files = sorted(place[1][0][0] for place in self.new_places if place[0] == "file")
        code = [place for place in self.new_places if place[0] != "file"]
        if code:
            parts.append("runs through new code" + _where(code))
        if files:
            parts.append(f"has got to {files[0]}")
        return ", ".join(parts)


def places(looks: Iterable[Look]) -> frozenset[Place]:
    """Return every place in these looks (of a rank, of its children: each look adds its own).

    Give what was returned for all earlier looks of a step as `seen` below: a loop of ten lines
    has seen them all after some looks, and is then at no new place.
    """
    return frozenset(place for look in looks for place in _places(look, every=True))


def functions(looks: Iterable[Look]) -> frozenset[Place]:
    """Return the places of these looks without their lines: given as `seen`, no line of the same
    functions is new. For a loop that was called a spin, of which some looks see some lines.
    """
    return frozenset(map(_without_lines, places(looks)))


def _without_lines(place: Place) -> Place:
    kind, code = place
    return kind, tuple((file, name, _NO_LINE) for file, name, _ in code)


def _places(look: Look, every: bool = False) -> Iterator[Place]:
    # Native frames are left out: only some looks have them. So are the classes of functions, which
    # only py-spy names, and locals: in the same place they may change for ever.
    for thread in look.threads:
        frames = _without_tries(
            tuple(
                (f.file, f.name.rpartition(".")[2], f.line) for f in thread.frames if not f.native
            )
        )
        if not frames:
            continue
        if thread.os_id == look.pid or thread is look.main:
            yield "main", frames
        elif every or _helpers_count(look):
            yield "thread", frames
    if every or look.rung != "py-spy":
        yield from _kernel_place(look)
    for path in _files_of(look):
        yield "file", ((path, "", 0),)
    if every:
        yield _process_place(look)


def _without_tries(frames: tuple[Code, ...]) -> tuple[Code, ...]:
    """Return a stack, innermost first, without what a library does in each of its endless tries to
    get a lock: that gets nowhere, in however many functions a look finds it.
    """
    asks = [at for at, (file, name, _) in enumerate(frames) if _asks_again(file, name)]
    if not asks:
        return frames
    file, name, _ = frames[asks[-1]]
    return ((file, name, 0), *frames[asks[-1] + 1 :])


def _asks_again(file: str, name: str) -> bool:
    return any(name == asks and file.endswith(end) for end, asks in _ASKS_AGAIN)


def _kernel_place(look: Look) -> Iterator[Place]:
    if not look.kernel or look.kernel[0].state in "TtZX":
        return
    call = look.kernel[0].syscall
    where = (call.name, "", call.stack) if call is not None else ("running", "", 0)
    yield "kernel", (where,)


def _files_of(look: Look) -> Iterator[str]:
    """Yield the files that the main thread's system call is about: on a slow file system a walk
    over many small ones shows the same line and hardly a byte.
    """
    call = look.kernel[0].syscall if look.kernel else None
    if call is None:
        return
    files = [call.path or "", *(one.path for one in call.descriptors if one.kind == "file")]
    # Who reads those of the kernel asks after processes: a helper does so all the time.
    yield from (path for path in files if path and not path.startswith(("/proc/", "/sys/")))


def _process_place(look: Look) -> Place:
    return "process", tuple((part, "", 0) for part in look.command or (look.name,))


def _helpers_count(look: Look) -> bool:
    """Return True if the main thread may be waiting for other threads of its process."""
    call = look.kernel[0].syscall if look.kernel else None
    if call is None:
        return not look.kernel
    if call.name in ("poll", "ppoll"):
        return any(one.kind != "socket" for one in call.descriptors)
    return call.name in _WAITS_FOR_THREADS


def movement(before: Look, after: Look, seen: Collection[Place] = ()) -> Movement:
    """Return what a process did between two looks; `seen` as in `places`."""
    seconds = max(after.at - before.at, 1e-3)
    known = places([before]) | frozenset(seen)
    # A look in which py-spy failed has a kernel place that the others do not have.
    python_counts = bool(before.threads) or bool(seen)
    counts = {"kernel": "py-spy" not in (before.rung, after.rung), "file": bool(before.kernel)}
    new = frozenset(
        place
        for place in _places(after)
        if not {place, _without_lines(place)} & known and counts.get(place[0], python_counts)
    )
    return Movement(
        seconds,
        new,
        _share(before.sample, after.sample),
        traffic(before, after, awaited(before), awaited(after)),
    )


def _share(before: Sample | None, after: Sample | None) -> float:
    if before is None or after is None or before.started != after.started:
        return 0.0
    # Time in the run queue counts: on a loaded machine what computes gets little of a core.
    used = after.cpu - before.cpu + after.delayed - before.delayed
    return max(0.0, used) / max(after.at - before.at, 1e-3)


def awaited(look: Look) -> tuple[tuple[str, Descriptor], ...]:
    """Return the descriptors that the step waits for, each with the name of the call it is in."""
    return tuple(
        (thread.syscall.name, one)
        for thread in _threads_of_the_step(look)
        if thread.syscall is not None
        for one in thread.syscall.descriptors
    )


def _threads_of_the_step(look: Look) -> tuple[Kernel, ...]:
    if not look.kernel or not _helpers_count(look):
        return look.kernel[:1]
    # Threads without Python (a store's server, gloo, OpenMP) serve others.
    python = {thread.os_id for thread in look.threads}
    return (look.kernel[0], *(one for one in look.kernel[1:] if one.tid in python))


def moved(
    looks: Sequence[Look],
    children: Sequence[Sequence[Look]] = (),
    seen: Collection[Place] = (),
) -> str:
    """Return in words what moved of a process and its children, "" if nothing did.

    Each sequence is of one process, oldest first. With one look nothing can be told.
    """
    known = frozenset(seen)
    parts = [_last_text(looks, known)]
    for child in children:
        if not child:
            continue
        about = f"its child {child[0].name} ({child[0].pid})"
        if looks and _born_after(child[0], looks[0]) and _process_place(child[0]) not in known:
            parts.append(f"{about} was started")
        elif text := _last_text(child, known):
            parts.append(f"{about} {text}")
    return "; ".join(part for part in parts if part)


def _last_text(looks: Sequence[Look], seen: frozenset[Place]) -> str:
    text = ""
    for before, after in pairwise(looks):
        seen |= places([before])
        text = movement(before, after, seen).text or text
    return text


def _born_after(child: Look, first: Look) -> bool:
    # Starts are known to a clock tick (10 ms) only.
    return child.state not in ("", "Z", "X") and child.at - child.age > first.at + 0.02


def computing(looks: Sequence[Look], children: Sequence[Sequence[Look]] = ()) -> str:
    """Return who burns CPU, in words ("computes (97 % of a core)"), "" if nobody does."""
    parts = []
    for index, one in enumerate([looks, *children]):
        share = _share(one[0].sample, one[-1].sample) if len(one) > 1 else 0.0
        if share >= BUSY_SHARE or _runs(one):
            subject = f"its child {one[0].name} ({one[0].pid}) " if index else ""
            parts.append(f"{subject}computes ({share:.0%} of a core)".replace("%", " %"))
    return "; ".join(parts)


def _runs(looks: Sequence[Look]) -> bool:
    """Whether a thread was on a core, or waiting for one, in most looks: on a loaded machine what
    computes gets a small share of a core.
    """
    running = sum(any(thread.state == "R" for thread in look.kernel) for look in looks)
    return len(looks) > 1 and running * 2 > len(looks)


def busy(
    looks: Sequence[Look],
    children: Sequence[Sequence[Look]] = (),
    seen: Collection[Place] = (),
) -> bool:
    """Return True if CPU is burnt over all the looks, and nothing moved: honest work, or a spin."""
    return bool(computing(looks, children)) and not moved(looks, children, seen)


def stirred(before: Sample, after: Sample) -> str:
    """Return what two cheap readings show ("uses 12 % of a core"), "" if it may stand still.

    Only says when a look is due: what a look shows decides.
    """
    seconds = max(after.at - before.at, 1e-3)
    if before.started != after.started:
        return "is another process"
    share = _share(before, after)
    if share >= 0.05:
        return f"uses {share:.0%} of a core".replace("%", " %")
    for verb, old, new in (
        ("reads", before.read, after.read),
        ("writes", before.written, after.written),
        ("receives", before.received or 0, after.received or 0),
        ("reads", before.disk_read, after.disk_read),
    ):
        if new - old >= 16384 * seconds:
            return f"{verb} {speed(new - old, seconds)}"
    return ""


def _where(new: Collection[Place]) -> str:
    first = min(new, key=lambda place: (place[0] != "main", place))
    if first[0] == "kernel":
        return f" (in {first[1][0][0]})"
    file, name, line = first[1][0]
    return f" ({name}, {file.rpartition('/')[2]}:{line})"
