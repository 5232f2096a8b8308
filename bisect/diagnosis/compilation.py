"""One rank compiles, and the others wait: what is compiled, by which program, how far that is, and
which time limit of those that wait runs out first. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ..base.compilers import describe_compiling, is_builder
from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.library_functions import Role, find_role
from ..base.process_facts import Build, Look
from ..base.rank_facts import RankFacts
from ..base.words import format_bytes, format_count, format_ranks, format_seconds
from .process.process_snapshot import find_descendants, merge_looks
from .process.time_limits import WaitLimit, find_first_limit
from .single_ranks import is_gone


@dataclass(frozen=True)
class Compilation:
    """What one rank compiles, itself or by programs below it."""

    rank: RankId
    pid: int  # of the outermost process that compiles
    build: Build  # what that does, at the last look
    seconds: float | None  # since when that program runs; None: the rank itself compiles
    inner: tuple[Look, ...] = ()  # the compilers at work below it
    new_files: int = 0  # in its folder, from the first look to the last
    new_bytes: int = 0

    @property
    def text(self) -> str:
        """Return in words what is compiled, by which program, since when, and how far that is."""
        build = self.build
        what = f" {build.what}" if build.what else ""
        by = f"{build.program} ({self.pid})"
        since = f" for {format_seconds(self.seconds)}" if self.seconds is not None else ""
        parts = [f"compiles{what} by {by}{since}"]
        if build.steps:
            parts.append(f"{build.done or 0} of {format_count(build.steps, 'file')} done")
        if self.inner:
            parts.append(f"now {', '.join(map(_describe_compiler, self.inner[:_MOST_SHOWN]))}")
        if grown := self._describe_growth():
            parts.append(grown)
        return "; ".join(parts)

    def _describe_growth(self) -> str:
        if not self.build.folder:
            return ""
        if self.new_files <= 0 and self.new_bytes <= 0:
            return ""
        files = f"{format_count(self.new_files, 'file')}, " if self.new_files > 0 else ""
        return f"{self.build.folder} grew by {files}{format_bytes(max(0, self.new_bytes))}"


_MOST_SHOWN = 2
_YOUNG = 5.0  # seconds


def _describe_compiler(look: Look) -> str:
    build = look.build
    what = build.what if build is not None else ""
    return f"{what} by {look.name} ({look.pid})" if what else f"{look.name} ({look.pid})"


def find_compilations(ranks: Sequence[RankFacts]) -> tuple[Compilation, ...]:
    """Return what each living rank compiles; a compiler that stands still compiles nothing."""
    found = (_find_compilation(facts) for facts in ranks if not is_gone(facts))
    return tuple(one for one in found if one is not None)


def _find_compilation(facts: RankFacts) -> Compilation | None:
    builds = [
        looks
        for looks in facts.children
        if looks and looks[-1].build is not None and looks[-1].state not in ("", "Z", "X")
    ]
    own = facts.looks[-1].build if facts.looks else None
    working = [looks for looks in builds if _is_compiler_at_work(looks)]
    if not working:
        at_work = own is not None and _is_compiler_at_work(facts.looks)
        return _make_compilation(facts.rank, facts.looks, own, True) if own and at_work else None
    pids = {looks[-1].pid for looks in builds}
    busy = {looks[-1].pid for looks in working}
    outermost = [
        looks
        for looks in builds
        if looks[-1].ppid not in pids
        and busy & {looks[-1].pid, *(one[-1].pid for one in find_descendants(facts, looks[-1].pid))}
    ]
    # A build of several files says more than what was started beside it.
    chosen = min(outermost or working, key=_order_of_outermost)
    first = chosen[-1]
    assert first.build is not None
    made = _make_compilation(facts.rank, chosen, first.build, False)
    return replace(made, inner=_list_innermost_compilers(facts, first.pid))


def _list_innermost_compilers(facts: RankFacts, pid: int) -> tuple[Look, ...]:
    """Return the last looks at the compilers below a process that have started no other."""
    below = find_descendants(facts, pid)
    parents = {looks[-1].ppid for looks in below}
    return tuple(
        looks[-1]
        for looks in below
        if looks[-1].build is not None and looks[-1].pid not in parents and looks[-1].state != "Z"
    )


def _is_compiler_at_work(looks: Sequence[Look]) -> bool:
    """Return whether a process that compiles has moved; a program of which there is one look alone
    has just begun.
    """
    last = looks[-1]
    if any(describe_compiling(*pair) for pair in pairwise(looks)):
        return True
    return len(looks) == 1 and not last.threads and last.state in ("R", "D") and last.age < _YOUNG


def _order_of_outermost(looks: Sequence[Look]) -> tuple[bool, float]:
    build = looks[-1].build
    return not (build is not None and is_builder(build.program)), -looks[-1].age


def _make_compilation(
    rank: RankId, looks: Sequence[Look], build: Build, is_rank: bool
) -> Compilation:
    before = next((one.build for one in looks if one.build is not None), None)
    same = before is not None and before.folder == build.folder
    files = (build.files or 0) - ((before.files or 0) if before is not None else 0)
    size = (build.size or 0) - ((before.size or 0) if before is not None else 0)
    last = looks[-1]
    return Compilation(
        rank,
        last.pid,
        build,
        None if is_rank else last.age,
        new_files=files if same else 0,
        new_bytes=size if same else 0,
    )


def find_waiting_ranks(
    ranks: Sequence[RankFacts], compilations: Sequence[Compilation]
) -> list[RankFacts]:
    """Return the living ranks that do not move and compile nothing."""
    compiling = {one.rank for one in compilations}
    return [
        facts
        for facts in ranks
        if facts.rank not in compiling and not (facts.moved or facts.busy or is_gone(facts))
    ]


def describe_compilations(ranks: Sequence[RankFacts]) -> list[str]:
    """Return in sentences which ranks compile what, who waits meanwhile, and whose patience ends
    first; [] where none compiles.
    """
    compilations = find_compilations(ranks)
    if not compilations:
        return []
    lines = [f"rank {one.rank} {one.text}" for one in compilations]
    return [*lines, *describe_who_waits(ranks, compilations)]


def describe_who_waits(
    ranks: Sequence[RankFacts], compilations: Sequence[Compilation]
) -> list[str]:
    """Return who waits for compilations, and when the first of them gives up; [] for nobody."""
    waiting = find_waiting_ranks(ranks, compilations)
    if not waiting:
        return []
    return [_describe_waiting(waiting), _describe_limit(find_first_limit(waiting), waiting)]


def _describe_waiting(waiting: Sequence[RankFacts]) -> str:
    for_lock = [facts.rank for facts in waiting if _awaits_build(facts)]
    rest = [facts.rank for facts in waiting if facts.rank not in for_lock]
    parts = []
    if for_lock:
        parts.append(
            f"{format_ranks(for_lock)} {_verb(for_lock, 'wait')} for the lock file of a build"
        )
    if rest:
        have = "has that in its cache" if len(rest) == 1 else "have that in their caches"
        parts.append(
            f"{format_ranks(rest)} {_verb(rest, 'wait')} and {_verb(rest, 'compile')} nothing: "
            f"{have}, or {_verb(rest, 'need')} no such thing"
        )
    return "; ".join(parts)


def _awaits_build(facts: RankFacts) -> bool:
    view = merge_looks(facts.looks)
    return view is not None and find_role(view.frames, Role.AWAITS_BUILD) is not None


def _verb(ranks: Sequence[RankId], verb: str) -> str:
    return f"{verb}s" if len(ranks) == 1 else verb


def _describe_limit(limit: WaitLimit | None, waiting: Sequence[RankFacts]) -> str:
    if limit is None and all(map(_awaits_build, waiting)):
        return "the wait for a lock file has no time limit"
    if limit is None:
        return (
            "the kernel knows no time limit of those that wait; by default a process group gives "
            "up after 10 minutes (NCCL) or 30 (gloo)"
        )
    what = "its operation of gloo" if limit.call == "gloo" else f"its {limit.call}"
    left = format_seconds(max(0.0, limit.left))
    return f"first to give up: rank {limit.rank}, in {left} ({what})"
