"""Completing a look from the one before: one that pauses asks for no locals, for it would pause for
longer; and what may block with a process does not always answer in time.
"""

from __future__ import annotations

from dataclasses import replace

from ..facts import Frame, Look, Thread
from .stacks import text


def carried_over(before: Look, after: Look) -> Look:
    """Return `after` with what only `before` shows: the locals of the frames that both have, the
    lock files found by them; and what was not answered, the command line and whether it is frozen.
    """
    if before.pid == after.pid and before.command and not after.command:
        after = replace(after, command=before.command, frozen=before.frozen)
    if after.rung != "py-spy" or before.pid != after.pid or any(_told(t) for t in after.threads):
        return after
    known = {thread.os_id: thread for thread in before.threads}
    threads = tuple(_with_locals_of(known.get(one.os_id), one) for one in after.threads)
    if not any(_told(thread) for thread in threads):
        return after
    return replace(
        after,
        threads=threads,
        stale_locks=after.stale_locks or before.stale_locks,
        dump=text(after.pid, after.command or (after.name,), threads),
    )


def _told(thread: Thread) -> bool:
    return any(frame.locals for frame in thread.frames)


def _with_locals_of(before: Thread | None, after: Thread) -> Thread:
    """Return the thread with the locals of the outermost frames that it shares with `before`."""
    shared = iter([f for f in reversed(before.frames) if not f.native] if before else [])
    frames: list[Frame] = []
    still = True
    for frame in reversed(after.frames):
        if still and not frame.native:
            old = next(shared, None)
            still = old is not None and _place(old) == _place(frame)
            if still and old is not None:
                frame = replace(frame, locals=old.locals)
        frames.append(frame)
    return replace(after, frames=tuple(reversed(frames)))


def _place(frame: Frame) -> tuple[str, str, int]:
    return frame.file, frame.name, frame.line
