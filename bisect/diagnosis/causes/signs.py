"""Signs that several causes share, and what makes more of the same kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ...facts import Frame, Look, Socket
from ..frames import worded
from .known import Found, Looks_for, said
from .scene import Scene

# Where a main thread waits for what a thread is to give.
FOR_A_THREAD = r"concurrent/futures/_base\.py|(?:^|/)(?:threading|queue)\.py|<frozen threading>"
# The same, and in the pools that hand tasks to threads.
FOR_THREADS = r"concurrent/futures/\w+\.py|(?:^|/)threading\.py|<frozen threading>"
_LOGGED = 0.8  # what a line that was logged is worth, next to the error that ended a rank


def frame_in(file: str, function: str, words: str) -> Looks_for:
    """Return a sign: the subject's main thread is in `function` in `file` (regular expressions, as
    for `Scene.inside`).
    """

    @said(words)
    def looks_for(scene: Scene) -> Found | None:
        frame = scene.inside(file, function)
        return None if frame is None else Found(f"frame {worded(frame)}")

    return looks_for


def native_in(function: str, words: str) -> Looks_for:
    """Return a sign: a native frame of the subject's main thread has a name with `function`."""

    @said(words)
    def looks_for(scene: Scene) -> Found | None:
        for frame in scene.frames:
            if frame.native and re.search(function, frame.name):
                return Found(f"native frame {native_name(frame)}")
        return None

    return looks_for


def ended_with(pattern: str, words: str) -> Looks_for:
    """Return a sign: the error with which a culprit ended, or its libraries' last lines, match
    `pattern`; its named groups are values.
    """

    @said(words)
    def looks_for(scene: Scene) -> Found | None:
        found = scene.wrote(pattern)
        if found is None:
            return None
        facts, match = found
        values: dict[str, object] = {k: v for k, v in match.groupdict().items() if v is not None}
        values["rank"] = facts.rank
        quoted = " ".join(match[0].split())[:160]
        if not facts.error:  # one line of many, and perhaps an old one
            return Found(f'rank {facts.rank} wrote "{quoted}" before it ended', values, _LOGGED)
        return Found(f'rank {facts.rank} ended with "{quoted}"', values)

    return looks_for


def makes_a_group(scene: Scene) -> Found | None:
    """A rank waits where a process group is made."""
    if scene.group != "construction":
        return None
    where = next((worded(f) for f in scene.frames if not f.native), "")
    return Found(f"it waits in {where}, where the process group is made")


def meets_its_peers(scene: Scene) -> Found | None:
    """A rank waits for its peers: where a process group is made, or in a collective."""
    if scene.group not in ("construction", "collective"):
        return None
    where = next((worded(f) for f in scene.frames if not f.native), "")
    return Found(f"it waits for its peers in {where}")


def others_wait_for_it(scene: Scene) -> Found | None:
    """Other ranks wait for this one."""
    waiting = scene.waiting_for_it()
    return Found(f"{wait_in_words(waiting)} for it") if waiting else None


def nothing_came(scene: Scene) -> Found | None:
    """No byte came over its connection between the first look and the last."""
    asked = scene.asked
    found = silence(scene, [(k, s) for k, s in scene.outward if not asked or s in asked])
    # Nothing comes over one that is not in use either.
    return found if asked or found is None else replace(found, trust=0.5)


def silence(scene: Scene, connections: Iterable[tuple[Look, Socket]]) -> Found | None:
    """Return that nothing came over one of `connections`, None if something came over all."""
    for look, socket in connections:
        if socket.state != "ESTABLISHED":
            continue
        earlier = [
            one
            for looks in scene.all_looks(look.pid)
            for s in looks.sockets
            if s.inode == socket.inode and (one := s.received) is not None
        ]
        if socket.received == 0 or (len(earlier) > 1 and earlier[0] == earlier[-1]):
            return Found(f"nothing comes from {socket.peer}", {"peer": socket.peer})
    return None


def through_a_proxy(scene: Scene) -> Found | None:
    """The other end of the connection that it waits for is the proxy that a variable names."""
    for socket in scene.awaited:
        name = scene.proxy_at(socket.peer)
        if name:
            return Found(f"{socket.peer} is the proxy of {name}", {"variable": name})
    return None


def ranks_in_words(ranks: tuple[int, ...]) -> str:
    """Return "rank 1", or "ranks 0, 2 and 3"; of many the first few."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = [str(rank) for rank in sorted(ranks)]
    if len(shown) > 6:
        shown = [*shown[:5], f"{len(shown) - 5} more"]
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"


def wait_in_words(ranks: tuple[int, ...]) -> str:
    """Return "rank 1 waits", or "ranks 0, 2 and 3 wait"."""
    return f"{ranks_in_words(ranks)} wait{'s' if len(ranks) == 1 else ''}"


def native_name(frame: Frame) -> str:
    """Return the name of a function of C or C++ without its arguments."""
    return frame.name.partition("(")[0].partition("<")[0][:80]
