"""The stacks of one process as text; of all together: tree.py."""

from __future__ import annotations

from collections.abc import Iterator

from ..diagnosis.frames import worded
from ..diagnosis.hops import Context, first_hop
from ..diagnosis.view import main_kernel
from ..facts import Descriptor, Look, RankFacts, Syscall, Thread
from .words import one_line, waited_for


def stack_text(look: Look, rank: int, role: str, host: str = "") -> str:
    """Return one look at one process as text, ready to attach; `role` is "rank" or what the
    process is to the rank ("child").
    """
    return "\n".join([*_header(look, rank, role, host), "", *_stacks(look), *_logs(look), ""])


def _header(look: Look, rank: int, role: str, host: str) -> Iterator[str]:
    who = f"rank {rank}" if role == "rank" else f"{role} of rank {rank}"
    yield " ".join(filter(None, [who, f"on {host}" if host else "", f"pid {look.pid}", look.name]))
    yield f"command: {one_line(' '.join(look.command)) or 'not readable'}"
    yield f"time: {look.age:.1f} s after the process started ({look.at:.3f} on the monotonic clock)"
    yield f"seen by: {look.rung}"
    kernel = main_kernel(look)
    wchan = f", in {kernel.wchan}" if kernel and kernel.wchan not in ("", "0") else ""
    frozen = f", frozen with its control group {look.frozen}" if look.frozen else ""
    yield f"state: {look.state or 'gone'}{wchan}{frozen}"
    if kernel and kernel.syscall:
        yield f"system call: {syscall_in_words(kernel.syscall)}"
    wait = first_hop([look], Context(_alone(look, rank)))
    yield f"waits for: {waited_for(wait)}" + (f": {one_line(wait.detail)}" if wait.detail else "")
    for lock in look.locks:
        holder = f"held by {lock.holder_name} ({lock.holder})" if lock.holder else "holder unknown"
        yield f"lock: {lock.path}, {holder}"
    for lock in look.stale_locks:
        age = f", {lock.age:.0f} s old" if lock.age is not None else ""
        yield f"lock file: {lock.path}{age}, no process here has it open"
    for sentence in look.missing:
        yield f"missing: {one_line(sentence)}"


def _alone(look: Look, rank: int) -> RankFacts:
    """Return a rank of which nothing but one look is known."""
    return RankFacts(rank, rank, pid=look.pid, looks=(look,))


def syscall_in_words(call: Syscall) -> str:
    """Return a system call with what its arguments mean: "recvfrom(3: socket ...)"."""
    parts = [call.path] if call.path else []
    parts += [descriptor_in_words(d) for d in call.descriptors[:8]]
    if call.futex is not None and call.futex.owner is not None:
        gone = ", which does not exist here" if call.futex.owner_exists is False else ""
        parts.append(f"a mutex of thread {call.futex.owner}{gone}")
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
        for frame in thread.frames:
            yield f"    {worded(frame)}"
            yield from (f"        {name} = {value}" for name, value in frame.locals)


def _logs(look: Look) -> Iterator[str]:
    for log in look.logs:
        yield from ("", f"The last lines of {log.path}:", *(f"    {line}" for line in log.lines))


def _thread(thread: Thread) -> str:
    state = "active" if thread.active else "idle"
    gil = ", has the GIL" if thread.owns_gil else ""
    return f"Thread {thread.os_id} ({state}{gil}): {thread.name or 'unnamed'}"
