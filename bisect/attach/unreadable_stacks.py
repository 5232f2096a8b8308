"""What is known of a rank whose Python stack cannot be read, as lines: threads, children, locks,
sockets, downloads; why it cannot be read, and the ways to it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Look, Socket
from ..base.rank_facts import RankFacts
from ..base.words import format_bytes
from ..evidence.process import read_trace_permission
from ..report.rows import format_rows, make_rows
from ..report.stacks import format_syscall
from .job_looks import Download


@dataclass(frozen=True)
class TracePermission:
    """What decides whether we may read the memory of other processes."""

    uid: int
    may_trace_all: bool  # CAP_SYS_PTRACE
    yama: int  # the kernel's ptrace_scope; 0 where it has no Yama
    seccomp: bool  # a filter is on us: containers have one
    container: bool


def find_trace_permission() -> TracePermission:
    """Return what this process may do."""
    own = read_trace_permission()
    return TracePermission(
        uid=os.geteuid(),
        may_trace_all=own.capable,
        yama=own.yama or 0,
        seccomp=own.filtered,
        container=_is_in_container(),
    )


def find_denial(own: TracePermission, uid: int) -> str:
    """Return what forbids to trace a process of user `uid`: "other user", "yama", "seccomp", or
    "not permitted" where none of these explains it.
    """
    if uid != own.uid and not own.may_trace_all:
        return "other user"
    if own.yama >= 3 or (own.yama >= 1 and not own.may_trace_all):
        return "yama"
    return "seccomp" if own.seccomp else "not permitted"


def list_ways(
    why: str, own: TracePermission, pid: int, environ: Mapping[str, str], uid: int
) -> list[str]:
    """Return the ways to a stack, the cheapest first: a command each, and what it costs."""
    again = f"hangbisect attach {pid}"
    found = []
    if why == "no py-spy":
        found.append(f"pip install py-spy, then {again}: nothing else is needed")
    if why == "other user":
        found.append(f"sudo -u '#{uid}' {again}: as the user whose job it is")
    if why == "yama" and own.yama < 3:
        found.append(f"sudo {again}: root may trace under Yama")
        found.append(f"sudo sysctl kernel.yama.ptrace_scope=0, then {again}: until the next boot")
    elif why in ("other user", "not permitted") and not own.container:
        found.append(f"sudo {again}")
    if why == "seccomp" or (own.container and why != "no py-spy"):
        found.append(
            f"from the host: sudo {again}, with the pid that `ps` shows there; it sees into "
            "containers"
        )
        found.append(
            "kubectl debug POD --profile=sysadmin --target=CONTAINER --image=IMAGE, or docker run "
            "--pid=container:NAME --cap-add=SYS_PTRACE: a second container that may trace"
        )
    if environ.get("PYTHONFAULTHANDLER"):
        found.append(
            f"kill -ABRT {pid}: PYTHONFAULTHANDLER is set, so it writes its stacks to its stderr; "
            "it ends the job"
        )
    found.append(
        "at the next start: hangbisect run -- COMMAND: its ranks allow it themselves, and need no "
        "leave"
    )
    return found


def _is_in_container() -> bool:
    marks = ("/.dockerenv", "/run/.containerenv")
    return any(map(os.path.exists, marks)) or bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


MOST_LINES = 6  # lines of a kind
MOST_UNREAD_RANKS = 4  # of which it is told what there is without a stack
_IDLE_STATES = ("LISTEN", "CLOSE", "")


def is_unread(facts: RankFacts) -> bool:
    """Return whether no look showed a Python stack of a rank that is there."""
    return bool(facts.looks) and not any(look.threads for look in facts.looks)


def find_unread_ranks(ranks: Iterable[RankFacts], culprit: Collection[RankId]) -> list[RankFacts]:
    """Return the ranks of which it is to be told what there is without a stack, those to blame
    first.
    """
    found = filter(is_unread, ranks)
    return sorted(found, key=lambda facts: (facts.rank not in culprit, facts.rank))[
        :MOST_UNREAD_RANKS
    ]


def find_reason(facts: RankFacts, denied: str) -> str:
    """Return why its call could not be read: `denied` where that was forbidden, "" where there is
    no Python to read.
    """
    said = " ".join(sentence for look in facts.looks for sentence in look.missing)
    if "py-spy is not installed" in said:
        return "no py-spy"
    if "no permission" in said or "not permitted" in said:
        return denied
    return ""


def unread_lines(
    facts: RankFacts, why: str, downloads: Sequence[Download], who: str = ""
) -> list[str]:
    """Return what is known of such a rank, or of `who` stands in its place."""
    last = facts.looks[-1]
    call = f"call: not readable ({why})" if why else "call: not readable (no Python runs there)"
    lines = [f"{who or f'rank {facts.rank}'}   pid {facts.pid}   {call}"]
    lines += _format_block("threads", _describe_threads(last))
    lines += _format_block("children", _describe_children(facts))
    lines += _format_block("locks", _describe_locks(facts))
    lines += _format_block("sockets", _describe_sockets(facts))
    pids = {facts.pid, *(looks[-1].pid for looks in facts.children if looks)}
    lines += _format_block("downloads", _describe_downloads(d for d in downloads if d.pid in pids))
    return lines


def way_lines(ways: Sequence[str]) -> list[str]:
    """Return the ways to a stack as lines."""
    return format_rows(make_rows("a stack", *ways))


def _format_block(label: str, texts: Iterable[str]) -> list[str]:
    found = list(texts)
    left = len(found) - MOST_LINES
    more = [f"and {left} more"] if left > 0 else []
    return format_rows(make_rows(label, *found[:MOST_LINES], *more))


def _describe_threads(look: Look) -> Iterator[str]:
    """Yield the threads, the main one first; those that stand in the same place together."""
    kinds: Counter[tuple[str, str, str, str]] = Counter()
    for one in look.kernel:
        main = "main" if one.tid == look.pid else ""
        call = format_syscall(one.syscall) if main and one.syscall else ""
        kinds[(main or one.comm, one.state, one.wchan, call)] += 1
    for (name, state, wchan, call), number in kinds.items():
        where = f" in {wchan}" if wchan else ""
        times = f" ({number} of them)" if number > 1 else ""
        yield f"{name} {state}{where}{f', {call}' if call else ''}{times}"


def _describe_children(facts: RankFacts) -> Iterator[str]:
    for looks in facts.children:
        if looks:
            one = looks[-1]
            wchan = one.kernel[0].wchan if one.kernel else ""
            yield f"{one.name} ({one.pid}) {one.state}{f' in {wchan}' if wchan else ''}"


def _describe_locks(facts: RankFacts) -> Iterator[str]:
    for looks in (facts.looks, *facts.children):
        for lock in looks[-1].locks if looks else ():
            holder = f"held by {lock.holder_name} ({lock.holder})" if lock.holder else "held"
            verb = "waits for" if lock.waiting else "has open"
            yield f"{verb} {lock.path or 'a file whose name may not be read'}, {holder}"


def _describe_sockets(facts: RankFacts) -> Iterator[str]:
    """Yield the connections of a rank, and those of what it has started that are not its own."""
    described: set[int] = set()
    for looks in (facts.looks, *facts.children):
        if not looks:
            continue
        first, last = looks[0], looks[-1]
        before = {one.inode: one for one in first.sockets}
        who = "" if last.pid == facts.pid else f"{last.name} ({last.pid}) "
        for one in last.sockets:
            is_tcp = one.family.startswith(("tcp", "udp")) and one.state not in _IDLE_STATES
            if is_tcp and one.peer and one.inode not in described:
                described.add(one.inode)
                yield who + _describe_socket(before.get(one.inode), one, last.at - first.at)


def _describe_socket(before: Socket | None, one: Socket, seconds: float) -> str:
    names = ", ".join(f"{n} ({p})" for n, p in zip(one.peer_names, one.peer_pids, strict=False))
    text = f"-> {one.peer} {one.state}{f' to {names}' if names else ''}"
    if one.received is None:
        return f"{text}, bytes not known"
    new = one.received - ((before.received or 0) if before else 0)
    received = f"{format_bytes(one.received)} received"
    return f"{text}, {received}, {format_bytes(new)} of them in {seconds:.1f} s"


def _describe_downloads(found: Iterable[Download]) -> Iterator[str]:
    for one in found:
        grown = "grows" if one.grew else "does not grow"
        yield f"{one.path} {format_bytes(one.size)}, {grown}"
