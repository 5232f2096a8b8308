"""Stacks as text: one process, and all ranks merged in one tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..diagnosis.frames import worded
from ..diagnosis.hops import Context, first_hop
from ..diagnosis.view import main_kernel, seen
from ..facts import Descriptor, Frame, Look, RankFacts, Syscall, Thread
from .words import cut, one_line, ranges, waited_for

_SYMBOL = 120  # characters of a frame in the merged tree: C++ templates have thousands


def stack_text(look: Look, rank: int, role: str, host: str = "") -> str:
    """Return one look at one process as text, ready to attach; `role` is "rank" or what the
    process is to the rank ("child").
    """
    return "\n".join([*_header(look, rank, role, host), "", *_stacks(look), ""])


def _header(look: Look, rank: int, role: str, host: str) -> Iterator[str]:
    who = f"rank {rank}" if role == "rank" else f"{role} of rank {rank}"
    yield " ".join(filter(None, [who, f"on {host}" if host else "", f"pid {look.pid}", look.name]))
    yield f"command: {one_line(' '.join(look.command)) or 'not readable'}"
    yield f"time: {look.age:.1f} s after the process started ({look.at:.3f} on the monotonic clock)"
    yield f"seen by: {look.rung}"
    kernel = main_kernel(look)
    wchan = f", in {kernel.wchan}" if kernel and kernel.wchan not in ("", "0") else ""
    yield f"state: {look.state or 'gone'}{wchan}"
    if kernel and kernel.syscall:
        yield f"system call: {syscall_in_words(kernel.syscall)}"
    wait = first_hop([look], Context(_alone(look, rank)))
    yield f"waits for: {waited_for(wait)}" + (f": {one_line(wait.detail)}" if wait.detail else "")
    for lock in look.locks:
        holder = f"held by {lock.holder_name} ({lock.holder})" if lock.holder else "holder unknown"
        yield f"lock: {lock.path}, {holder}"
    for sentence in look.missing:
        yield f"missing: {one_line(sentence)}"


def _alone(look: Look, rank: int) -> RankFacts:
    """Return a rank of which nothing but one look is known."""
    return RankFacts(rank, rank, pid=look.pid, looks=(look,))


def syscall_in_words(call: Syscall) -> str:
    """Return a system call with what its arguments mean: "recvfrom(3: socket ...)"."""
    parts = [call.path] if call.path else []
    parts += [descriptor_in_words(d) for d in call.descriptors[:8]]
    if call.timeout is not None:
        parts.append(f"time limit {call.timeout:g} s")
    return f"{call.name or call.number}({', '.join(one_line(p) for p in parts)})"


def descriptor_in_words(descriptor: Descriptor) -> str:
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


def _stacks(look: Look) -> Iterator[str]:
    if look.dump:
        yield from look.dump.splitlines()
        return
    if not look.threads:
        yield "no stack could be read"
    for thread in look.threads:
        yield _thread(thread)
        yield from (f"    {worded(frame)}" for frame in thread.frames)


def _thread(thread: Thread) -> str:
    state = "active" if thread.active else "idle"
    gil = ", has the GIL" if thread.owns_gil else ""
    return f"Thread {thread.os_id} ({state}{gil}): {thread.name or 'unnamed'}"


def merged(ranks: Sequence[RankFacts]) -> str:
    """Return the main threads of all ranks as one tree, outermost first, with the ranks that
    share each run of frames.
    """
    paths: dict[int, list[str]] = {}
    without = []
    for facts in ranks:
        view = seen(facts.looks)
        frames = view.frames if view else ()
        if frames:
            paths[facts.rank] = [cut(worded(f), _SYMBOL) for f in reversed(_inside(frames))]
        else:
            without.append(facts.rank)
    lines = list(_tree(paths)) if paths else []
    if without:
        lines.append(f"[{ranges(without)}] no stack")
    return "\n".join([*lines, ""])


def _inside(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return `frames` (innermost first) without the native ones that started Python: only some
    looks have them, and they are addresses that differ between ranks.
    """
    python = [i for i, frame in enumerate(frames) if not frame.native]
    return frames[: python[-1] + 1] if python else frames


def _tree(paths: dict[int, list[str]]) -> Iterator[str]:
    # A stack of our own: the job's recursion may go deeper than Python lets us follow.
    todo = [(paths, 0, "")]
    while todo:
        group, depth, margin = todo.pop()
        yield f"{margin}[{ranges(group)}]"
        margin += "  "
        while True:
            ended = [rank for rank, path in group.items() if len(path) == depth]
            branches: dict[str, dict[int, list[str]]] = {}
            for rank, path in group.items():
                if len(path) > depth:
                    branches.setdefault(path[depth], {})[rank] = path
            if ended or len(branches) != 1:
                break
            yield margin + next(iter(branches))
            depth += 1
        if ended and branches:
            yield f"{margin}[{ranges(ended)}] goes no deeper"
        todo.extend((below, depth, margin) for below in reversed(branches.values()))
