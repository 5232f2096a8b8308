"""Stacks as text: those of one process, ready to attach, and those of all ranks and their children
as one tree (stacks/merged.txt).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import chain, takewhile
from typing import Literal

from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Descriptor, Frame, Look, Syscall, Thread
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Wait
from ..base.words import (
    cut_line,
    format_count,
    format_rank_numbers,
    format_ranks,
    join_lines,
    name_awaited,
    printable,
)
from ..diagnosis.process.frames import format_frame
from ..diagnosis.process.merged_stacks import (
    Branch,
    StackLines,
    find_role,
    is_idle_thread,
    merge_stacks,
)
from ..diagnosis.process.process_snapshot import ProcessSnapshot, main_kernel, merge_looks


def stack_text(look: Look, rank: RankId, role: str, wait: Wait, host: str = "") -> str:
    """Return one look at one process as text, ready to attach; `role` is "rank" or what the
    process is to the rank ("child"), `wait` what it waits for.
    """
    parts = (*_header(look, rank, role, wait, host), "", *_stacks(look))
    return "\n".join([*parts, *_native_threads(look), *_logs(look), ""])


def _header(look: Look, rank: RankId, role: str, wait: Wait, host: str) -> Iterator[str]:
    who = f"rank {rank}" if role == "rank" else f"{role} of rank {rank}"
    yield " ".join(filter(None, [who, f"on {host}" if host else "", f"pid {look.pid}", look.name]))
    yield f"command: {join_lines(' '.join(look.command)) or 'not readable'}"
    yield f"time: {look.age:.1f} s after the process started ({look.at:.3f} on the monotonic clock)"
    yield f"seen by: {look.rung}"
    kernel = main_kernel(look)
    wchan = f", in {kernel.wchan}" if kernel and kernel.wchan not in ("", "0") else ""
    frozen = f", frozen with its control group {look.frozen}" if look.frozen else ""
    yield f"state: {look.state or 'gone'}{wchan}{frozen}"
    if call := format_call(look):
        yield f"system call: {call}"
    yield f"waits for: {name_awaited(wait)}" + (
        f": {join_lines(wait.detail)}" if wait.detail else ""
    )
    for lock in look.locks:
        holder = f"held by {lock.holder_name} ({lock.holder})" if lock.holder else "holder unknown"
        yield f"lock: {lock.path}, {holder}"
    for lock in look.stale_locks:
        age = f", {lock.age:.0f} s old" if lock.age is not None else ""
        yield f"lock file: {lock.path}{age}, no process here has it open"
    for address in look.unserved:
        yield f"nobody serves: {address}"
    if look.preloaded:
        yield f"preloaded: {', '.join(look.preloaded)}"
    for task in look.tasks:
        where = " < ".join(format_frame(frame) for frame in task.frames)
        awaits = f", for {', '.join(map(repr, task.awaits))}" if task.awaits else ""
        yield f"task {task.name!r}: {join_lines(where) or 'not begun'}{awaits}"
    if look.task_ring:
        yield f"tasks that await one another: {' -> '.join(look.task_ring)}"
    for file in look.awaited_files:
        age = f", {file.age:.0f} s old" if file.age is not None else ""
        yield f"waits until it is gone: {file.path}{age}, in {file.place}"
    for sentence in look.missing:
        yield f"missing: {join_lines(sentence)}"


def format_state(look: Look) -> str:
    """Return the state of a process, and where in the kernel its main thread is."""
    kernel = main_kernel(look)
    wchan = kernel.wchan if kernel else ""
    return ", ".join(filter(None, (look.state or "gone", wchan if wchan != "0" else "")))


def format_call(look: Look) -> str:
    """Return the system call that the main thread is in, "" if none is known."""
    kernel = main_kernel(look)
    return format_syscall(kernel.syscall) if kernel and kernel.syscall else ""


def format_syscall(call: Syscall) -> str:
    """Return a system call with what its arguments mean: "recvfrom(3: socket ...)"."""
    parts = [call.path] if call.path else []
    parts += [format_descriptor(d) for d in call.descriptors[:8]]
    if call.futex is not None and call.futex.owner is not None:
        gone = ", which does not exist here" if call.futex.owner_exists is False else ""
        parts.append(f"a mutex of thread {call.futex.owner}{gone}")
    if call.timeout is not None:
        parts.append(f"time limit {call.timeout:g} s")
    return f"{call.name or call.number}({', '.join(join_lines(p) for p in parts)})"


def format_descriptor(descriptor: Descriptor) -> str:
    """Return a descriptor with the other end as far as it is known."""
    text = f"{descriptor.fd}: {descriptor.kind} {descriptor.path}"
    socket = descriptor.socket
    if socket is not None:
        text += f" {socket.local} -> {socket.peer} {socket.state}"
        names = [*socket.peer_names, *[""] * len(socket.peer_pids)]
        ends = [f"{name} ({pid})" for pid, name in zip(socket.peer_pids, names, strict=False)]
        text += f" to {', '.join(ends)}" if ends else ""
    if descriptor.other_ends:
        text += f" to {', '.join(map(str, descriptor.other_ends))}"
    return text


_MOST_NATIVE = 24  # lines of threads of libraries


def _native_threads(look: Look) -> Iterator[str]:
    """Yield the threads that are none of Python's, as the kernel sees them: NCCL's proxy, torch's
    watchdog, autograd's of each device; those that are alike in one line.
    """
    known = {thread.os_id for thread in look.threads}
    others = [one for one in look.kernel if one.tid not in known and one.tid != look.pid]
    alike: dict[str, list[int]] = {}
    for one in others:
        name = one.syscall.name if one.syscall is not None else ""
        where = ", ".join(filter(None, (one.state, one.wchan, name)))
        alike.setdefault(f'"{printable(one.comm)}": {where}', []).append(one.tid)
    if alike and look.threads:
        yield from ("", "Threads without Python, as the kernel sees them:")
        for text, tids in [*alike.items()][:_MOST_NATIVE]:
            which = f"{len(tids)} threads, the first {tids[0]}" if len(tids) > 1 else f"{tids[0]}"
            yield f"  {text} ({which})"  # four spaces are a frame
        if len(alike) > _MOST_NATIVE:
            yield f"  and {sum(map(len, [*alike.values()][_MOST_NATIVE:]))} more"


def _stacks(look: Look) -> Iterator[str]:
    if look.dump:
        yield from look.dump.splitlines()
        return
    if not look.threads:
        yield "no stack could be read"
    for thread in look.threads:
        yield _thread(thread)
        for frame in thread.frames:
            yield f"    {format_frame(frame)}"
            yield from (f"        {name} = {value}" for name, value in frame.locals)


def _logs(look: Look) -> Iterator[str]:
    for log in look.logs:
        yield from ("", f"The last lines of {log.path}:", *(f"    {line}" for line in log.lines))


def _thread(thread: Thread) -> str:
    state = "active" if thread.active else "idle"
    gil = ", has the GIL" if thread.owns_gil else ""
    return f"Thread {thread.os_id} ({state}{gil}): {thread.name or 'unnamed'}"


MOST_LINES = 60
_SYMBOL = 120  # characters of a frame: C++ templates have thousands
# How many lines of a run of frames are shown at its beginning and as many at its end: of main
# threads, and of all others. The first row that fits is taken. 0: one line in all.
_ROOM: tuple[tuple[int | None, int | None], ...] = (
    *((None, None), (None, 6), (None, 3), (16, 3), (12, 3), (8, 3), (6, 2), (5, 2), (4, 1)),
    *((3, 1), (2, 1), (2, 0), (1, 0), (0, 0)),
)


@dataclass(frozen=True)
class StackGroup:
    """Stacks that make one tree: of main threads, of all others, or of children of one role."""

    kind: Literal["main threads", "other threads", "children"]
    stacks: tuple[tuple[RankId, Sequence[Frame]], ...]  # each with its rank, innermost frame first
    # The ranks of processes without a stack, by why: of a rank in a sentence, of a child what the
    # kernel shows.
    without: Mapping[str, Sequence[RankId]] = field(default_factory=dict)
    idle: tuple[RankId, ...] = ()  # the ranks of idle threads of pools, which are only counted
    role: str = ""  # of children: "DataLoader worker"


def group_stacks(ranks: Sequence[RankFacts]) -> list[StackGroup]:
    """Return the stacks of all ranks: main threads, other threads, and children by role."""
    views = {facts.rank: view for facts in ranks if (view := merge_looks(facts.looks)) is not None}
    return [_group_main_threads(ranks, views), _group_other_threads(views), *_group_children(ranks)]


def _group_main_threads(
    ranks: Sequence[RankFacts], views: Mapping[RankId, ProcessSnapshot]
) -> StackGroup:
    stacks = []
    without: dict[str, list[RankId]] = {}
    for facts in ranks:
        view = views.get(facts.rank)
        if view is not None and view.frames:
            stacks.append((facts.rank, view.frames))
        else:
            without.setdefault(_explain_missing_stack(facts, view), []).append(facts.rank)
    return StackGroup("main threads", tuple(stacks), without)


def _explain_missing_stack(facts: RankFacts, view: ProcessSnapshot | None) -> str:
    """Return in words what is known of a rank without a stack."""
    if facts.never_started:
        return "it never started"
    if facts.left or not facts.alive:
        return "it has left" + (f", status {facts.status}" if facts.status is not None else "")
    return _kernel_state(view.look) if view else "no look found it"


def _kernel_state(look: Look) -> str:
    kernel = main_kernel(look)
    call = kernel.syscall.name if kernel and kernel.syscall else ""
    wchan = kernel.wchan if kernel else ""
    return ", ".join(part for part in (f"state {look.state or '?'}", call, wchan) if part)


def _group_other_threads(views: Mapping[RankId, ProcessSnapshot]) -> StackGroup:
    others = [
        (rank, thread)
        for rank, view in views.items()
        for thread in view.threads
        if thread != view.main
    ]
    return StackGroup(
        "other threads",
        tuple((rank, one.frames) for rank, one in others if not is_idle_thread(one)),
        idle=tuple(rank for rank, one in others if is_idle_thread(one)),
    )


def _group_children(ranks: Sequence[RankFacts]) -> Iterator[StackGroup]:
    stacks: dict[str, list[tuple[RankId, Sequence[Frame]]]] = {}
    without: dict[str, dict[str, list[RankId]]] = {}
    for facts in ranks:
        for looks in facts.children:
            view = merge_looks(looks)
            if view is None:
                continue
            role = child_role(looks)
            of_role, unseen = stacks.setdefault(role, []), without.setdefault(role, {})
            if view.frames:
                of_role.append((facts.rank, view.frames))
            else:
                unseen.setdefault(_kernel_state(view.look), []).append(facts.rank)
    for role in sorted(stacks):
        yield StackGroup("children", tuple(stacks[role]), without[role], role=role)


def child_role(looks: Sequence[Look]) -> str:
    """Return what a child is, by the last look at it that found threads, else by the last."""
    return find_role(next((look for look in reversed(looks) if look.threads), looks[-1]))


def merged_stacks_text(ranks: Sequence[RankFacts], most: int = MOST_LINES) -> str:
    """Return the stacks of all ranks as one tree, outermost frame first, with the ranks that
    share each run of frames: main threads, then the other threads, then children by role.

    Frames in the middle of long runs are left out as far as that is needed for `most` lines.
    """
    main, *others = map(_make_part, group_stacks(ranks))
    for own, rest in _ROOM:
        lines = main.lines(own)
        for part in others:
            more = part.lines(rest)
            lines += ["", *more] if more else []
        if len(lines) <= most:
            break
    else:
        kept = max(most - 1, len(main.lines(0)))  # the main threads are never cut
        left = len(lines) - kept
        lines = (
            [*lines[:kept], f"({format_count(left, 'more line')} in stacks/)"] if left else lines
        )
    return "\n".join([*lines, ""])


def _make_part(group: StackGroup) -> _Part:
    lines = [(rank, _frame_lines(frames)) for rank, frames in group.stacks if frames]
    if group.kind == "main threads":
        without = {f"no stack: {why}": ranks for why, ranks in group.without.items()}
        return _Part("", merge_stacks(lines), without)
    if group.kind == "other threads":
        count = format_count(len(group.idle), "idle pool thread")
        return _Part(group.kind, merge_stacks(lines), {count: group.idle} if group.idle else {})
    without = {f"no Python stack: {why}": ranks for why, ranks in group.without.items()}
    ranks = [rank for rank, _ in group.stacks] + list(chain.from_iterable(group.without.values()))
    children = "1 child" if len(ranks) == 1 else f"{len(ranks)} children"
    title = f"{join_lines(group.role)}: {children} of {format_ranks(ranks)}"
    return _Part(title, merge_stacks(lines), without)


class _Part:
    """A tree with its title and what is no tree: those without a stack, idle threads."""

    def __init__(
        self, title: str, branches: Sequence[Branch], without: Mapping[str, Sequence[RankId]]
    ) -> None:
        self._title, self._branches = title, branches
        self._labels = [f"[{format_rank_numbers(branch.ranks)}]" for branch in branches]
        self._without = [f"[{format_rank_numbers(ranks)}] {why}" for why, ranks in without.items()]

    def lines(self, keep: int | None) -> list[str]:
        """Return the part with `keep` frames at the beginning and the end of each run."""
        body = [*self._tree(keep), *self._without]
        return [self._title, *body] if body and self._title else body

    def _tree(self, keep: int | None) -> Iterator[str]:
        """Yield the lines of all branches, and a line where those that grow from one part."""
        for number, branch in enumerate(self._branches):
            margin = "  " * branch.depth
            shown = _shorten_run(branch.lines, keep) or ["goes no deeper"]
            yield f"{margin}{self._labels[number]} {shown[0]}"
            yield from (f"{margin}  {line}" for line in shown[1:])
            if branch.forks:
                where = _fork_function(branch, self._branches[number + 1 :])
                yield f"{margin}  --- they part{where} ---"


# ---- lines ----------------------------------------------------------------------------------


def _frame_lines(frames: Sequence[Frame]) -> StackLines:
    """Return a line for each frame (innermost first), outermost first."""
    return tuple(
        _line(f.name, f.file, f.line, f.native) for f in reversed(drop_starting_frames(frames))
    )


def drop_starting_frames(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return `frames` (innermost first) without the native ones that started Python: only some
    looks have them, and they are addresses that differ.
    """
    python = [i for i, frame in enumerate(frames) if not frame.native]
    return frames[: python[-1] + 1] if python else frames


@lru_cache(maxsize=1 << 14)  # a thousand ranks have few different frames
def _line(name: str, file: str, line: int, native: bool) -> str:
    text = format_frame(Frame(name, file, line))
    text = join_lines(text.replace(":0)", ")") if native else text)  # no line is known of it
    return cut_line(f"native {text}" if native else text, _SYMBOL)


def _fork_function(branch: Branch, after: Sequence[Branch]) -> str:
    """Return " in f (x.py)" if all that grow from `branch` begin in one function."""
    grown = takewhile(lambda other: other.depth > branch.depth, after)
    begins = {
        other.lines[0].rpartition(":")[0] if other.lines else ""
        for other in grown
        if other.depth == branch.depth + 1
    }
    function = begins.pop() if len(begins) == 1 else ""
    return f" in {function})" if function else ""


def _shorten_run(lines: StackLines, keep: int | None) -> list[str]:
    """Return `lines` without those in the middle, `keep` on each side; with 0 on one line."""
    if keep is None or len(lines) <= max(1, 2 * keep + 1):
        return list(lines)
    left = len(lines) - 2 * max(1, keep)
    between = f"... {format_count(left, 'frame')} ..." if left else "..."
    if keep:
        return [*lines[:keep], between, *lines[-keep:]]
    return [f"{lines[0]}  {between}  {lines[-1]}"]
