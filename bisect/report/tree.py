"""The stacks of all ranks and their children as one tree in text: stacks/merged.txt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import takewhile

from ..diagnosis.frames import worded
from ..diagnosis.roles import is_idle, role_of
from ..diagnosis.tree import Branch, Stack, merge
from ..diagnosis.view import Seen, main_kernel, seen
from ..facts import Frame, Look, RankFacts
from .words import brief, counted, cut, of_ranks, one_line

MOST_LINES = 60
_SYMBOL = 120  # characters of a frame: C++ templates have thousands
# How many lines of a run of frames are shown at its beginning and as many at its end: of main
# threads, and of all others. The first row that fits is taken. 0: one line in all.
_ROOM: tuple[tuple[int | None, int | None], ...] = (
    *((None, None), (None, 6), (None, 3), (16, 3), (12, 3), (8, 3), (6, 2), (5, 2), (4, 1)),
    *((3, 1), (2, 1), (2, 0), (1, 0), (0, 0)),
)


def merged(ranks: Sequence[RankFacts], most: int = MOST_LINES) -> str:
    """Return the stacks of all ranks as one tree, outermost frame first, with the ranks that
    share each run of frames: main threads, then the other threads, then children by role.

    Frames in the middle of long runs are left out as far as that is needed for `most` lines.
    """
    views = {facts.rank: view for facts in ranks if (view := seen(facts.looks)) is not None}
    main, others, children = _main(ranks, views), _others(views), _children(ranks)
    for own, rest in _ROOM:
        lines = main.lines(own)
        for part in (others, *children):
            more = part.lines(rest)
            lines += ["", *more] if more else []
        if len(lines) <= most:
            break
    else:
        kept = max(most - 1, len(main.lines(0)))  # the main threads are never cut
        left = len(lines) - kept
        lines = [*lines[:kept], f"({counted(left, 'more line')} in stacks/)"] if left else lines
    return "\n".join([*lines, ""])


# ---- the parts ------------------------------------------------------------------------------


class _Part:
    """A tree with its title and what is no tree: those without a stack, idle threads."""

    def __init__(
        self, title: str, branches: Sequence[Branch], without: dict[str, list[int]]
    ) -> None:
        self._title, self._branches = title, branches
        self._labels = [f"[{brief(branch.ranks)}]" for branch in branches]
        self._without = [f"[{brief(ranks)}] {why}" for why, ranks in without.items()]

    def lines(self, keep: int | None) -> list[str]:
        """Return the part with `keep` frames at the beginning and the end of each run."""
        body = [*self._tree(keep), *self._without]
        return [self._title, *body] if body and self._title else body

    def _tree(self, keep: int | None) -> Iterator[str]:
        """Yield the lines of all branches, and a line where those that grow from one part."""
        for number, branch in enumerate(self._branches):
            margin = "  " * branch.depth
            shown = _shortened(branch.lines, keep) or ["goes no deeper"]
            yield f"{margin}{self._labels[number]} {shown[0]}"
            yield from (f"{margin}  {line}" for line in shown[1:])
            if branch.forks:
                where = _where(branch, self._branches[number + 1 :])
                yield f"{margin}  --- they part{where} ---"


def _main(ranks: Sequence[RankFacts], views: dict[int, Seen]) -> _Part:
    stacks: list[tuple[int, Stack]] = []
    without: dict[str, list[int]] = {}
    for facts in ranks:
        view = views.get(facts.rank)
        lines = _lines(view.frames) if view else ()
        if lines:
            stacks.append((facts.rank, lines))
        else:
            without.setdefault(f"no stack: {instead_of_a_stack(facts, view)}", []).append(
                facts.rank
            )
    return _Part("", merge(stacks), without)


def instead_of_a_stack(facts: RankFacts, view: Seen | None) -> str:
    """Return in words what is known of a rank without a stack."""
    if facts.never_started:
        return "it never started"
    if facts.left or not facts.alive:
        return "it has left" + (f", status {facts.status}" if facts.status is not None else "")
    return _kernel(view.look) if view else "no look found it"


def _kernel(look: Look) -> str:
    kernel = main_kernel(look)
    call = kernel.syscall.name if kernel and kernel.syscall else ""
    wchan = kernel.wchan if kernel else ""
    return ", ".join(part for part in (f"state {look.state or '?'}", call, wchan) if part)


def _others(views: dict[int, Seen]) -> _Part:
    """The threads but the main ones. Idle ones of pools are only counted."""
    stacks: list[tuple[int, Stack]] = []
    idle: dict[int, int] = {}
    for rank, view in views.items():
        for thread in view.threads:
            if thread == view.main:
                continue
            if is_idle(thread):
                idle[rank] = idle.get(rank, 0) + 1
            elif lines := _lines(thread.frames):
                stacks.append((rank, lines))
    folded = counted(sum(idle.values()), "idle pool thread")
    return _Part("other threads", merge(stacks), {folded: list(idle)} if idle else {})


def _children(ranks: Sequence[RankFacts]) -> list[_Part]:
    """A tree for each role that children of ranks have, of their main threads."""
    stacks: dict[str, list[tuple[int, Stack]]] = {}
    without: dict[str, dict[str, list[int]]] = {}
    for facts in ranks:
        for looks in facts.children:
            view = seen(looks)
            if view is None:
                continue
            role = role_by(looks)
            of_role = stacks.setdefault(role, [])
            lines = _lines(view.frames)
            if lines:
                of_role.append((facts.rank, lines))
            else:
                why = f"no Python stack: {_kernel(view.look)}"
                without.setdefault(role, {}).setdefault(why, []).append(facts.rank)
    parts = []
    for role in sorted(stacks):
        unseen = without.get(role, {})
        ranks_of = [rank for rank, _ in stacks[role]] + [
            r for them in unseen.values() for r in them
        ]
        parts.append(_Part(_title(role, ranks_of), merge(stacks[role]), unseen))
    return parts


def role_by(looks: Sequence[Look]) -> str:
    """Return what a child is, by the last look at it that found threads, else by the last."""
    return role_of(next((look for look in reversed(looks) if look.threads), looks[-1]))


def _title(role: str, ranks: Sequence[int]) -> str:
    children = "1 child" if len(ranks) == 1 else f"{len(ranks)} children"
    return f"{one_line(role)}: {children} of {of_ranks(ranks)}"


# ---- lines ----------------------------------------------------------------------------------


def _lines(frames: Sequence[Frame]) -> Stack:
    """Return a line for each frame (innermost first), outermost first."""
    return tuple(
        _line(f.name, f.file, f.line, f.native) for f in reversed(without_starters(frames))
    )


def without_starters(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return `frames` (innermost first) without the native ones that started Python: only some
    looks have them, and they are addresses that differ.
    """
    python = [i for i, frame in enumerate(frames) if not frame.native]
    return frames[: python[-1] + 1] if python else frames


@lru_cache(maxsize=1 << 14)  # a thousand ranks have few different frames
def _line(name: str, file: str, line: int, native: bool) -> str:
    text = worded(Frame(name, file, line))
    text = one_line(text.replace(":0)", ")") if native else text)  # no line is known of it
    return cut(f"native {text}" if native else text, _SYMBOL)


def _where(branch: Branch, after: Sequence[Branch]) -> str:
    """Return " in f (x.py)" if all that grow from `branch` begin in one function."""
    grown = takewhile(lambda other: other.depth > branch.depth, after)
    begins = {
        other.lines[0].rpartition(":")[0] if other.lines else ""
        for other in grown
        if other.depth == branch.depth + 1
    }
    function = begins.pop() if len(begins) == 1 else ""
    return f" in {function})" if function else ""


def _shortened(lines: Stack, keep: int | None) -> list[str]:
    """Return `lines` without those in the middle, `keep` on each side; with 0 on one line."""
    if keep is None or len(lines) <= max(1, 2 * keep + 1):
        return list(lines)
    left = len(lines) - 2 * max(1, keep)
    between = f"... {counted(left, 'frame')} ..." if left else "..."
    if keep:
        return [*lines[:keep], between, *lines[-keep:]]
    return [f"{lines[0]}  {between}  {lines[-1]}"]
