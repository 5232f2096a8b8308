"""What is known of a rank whose Python stack cannot be read, as lines: threads, children, locks,
sockets, downloads, and the ways to a stack. Words from facts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from ..facts import Look, RankFacts, Socket
from ..report.people_lines import labelled, more
from ..report.stacks import syscall_in_words
from ..report.words import counted
from .downloads import Download

MOST = 6  # lines of a kind
MOST_RANKS = 4  # of which it is told what there is without a stack
_BORING = ("LISTEN", "CLOSE", "")


def is_unread(facts: RankFacts) -> bool:
    """Return whether no look showed a Python stack of a rank that is there."""
    return bool(facts.looks) and not any(look.threads for look in facts.looks)


def unread_ranks(ranks: Iterable[RankFacts], culprit: Collection[int]) -> list[RankFacts]:
    """Return the ranks of which it is to be told what there is without a stack, those to blame
    first.
    """
    found = filter(is_unread, ranks)
    return sorted(found, key=lambda facts: (facts.rank not in culprit, facts.rank))[:MOST_RANKS]


def reason(facts: RankFacts, denied: str) -> str:
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
    lines += _block("threads", _threads(last))
    lines += _block("children", _children(facts))
    lines += _block("locks", _locks(facts))
    lines += _block("sockets", _sockets(facts))
    pids = {facts.pid, *(looks[-1].pid for looks in facts.children if looks)}
    lines += _block("downloads", _downloads(d for d in downloads if d.pid in pids))
    return lines


def ways_lines(ways: Sequence[str]) -> list[str]:
    """Return the ways to a stack as lines."""
    return [
        line
        for number, way in enumerate(ways)
        for line in (more(way) if number else labelled("a stack", way))
    ]


def _block(label: str, texts: Iterable[str]) -> list[str]:
    found = list(texts)
    shown, left = found[:MOST], len(found) - MOST
    shown += [f"and {left} more"] if left > 0 else []
    return [
        line
        for number, text in enumerate(shown)
        for line in (more(text) if number else labelled(label, text))
    ]


def _threads(look: Look) -> Iterator[str]:
    """Yield the threads, the main one first; those that stand in the same place together."""
    kinds: Counter[tuple[str, str, str, str]] = Counter()
    for one in look.kernel:
        main = "main" if one.tid == look.pid else ""
        call = syscall_in_words(one.syscall) if main and one.syscall else ""
        kinds[(main or one.comm, one.state, one.wchan, call)] += 1
    for (name, state, wchan, call), number in kinds.items():
        where = f" in {wchan}" if wchan else ""
        times = f" ({number} of them)" if number > 1 else ""
        yield f"{name} {state}{where}{f', {call}' if call else ''}{times}"


def _children(facts: RankFacts) -> Iterator[str]:
    for looks in facts.children:
        if looks:
            one = looks[-1]
            wchan = one.kernel[0].wchan if one.kernel else ""
            yield f"{one.name} ({one.pid}) {one.state}{f' in {wchan}' if wchan else ''}"


def _locks(facts: RankFacts) -> Iterator[str]:
    for looks in (facts.looks, *facts.children):
        for lock in looks[-1].locks if looks else ():
            holder = f"held by {lock.holder_name} ({lock.holder})" if lock.holder else "held"
            verb = "waits for" if lock.waiting else "has open"
            yield f"{verb} {lock.path or 'a file whose name may not be read'}, {holder}"


def _sockets(facts: RankFacts) -> Iterator[str]:
    """Yield the connections of a rank, and those of what it has started that are not its own."""
    told: set[int] = set()
    for looks in (facts.looks, *facts.children):
        if not looks:
            continue
        first, last = looks[0], looks[-1]
        before = {one.inode: one for one in first.sockets}
        who = "" if last.pid == facts.pid else f"{last.name} ({last.pid}) "
        for one in last.sockets:
            is_tcp = one.family.startswith(("tcp", "udp")) and one.state not in _BORING
            if is_tcp and one.peer and one.inode not in told:
                told.add(one.inode)
                yield who + _socket(before.get(one.inode), one, last.at - first.at)


def _socket(before: Socket | None, one: Socket, seconds: float) -> str:
    names = ", ".join(f"{n} ({p})" for n, p in zip(one.peer_names, one.peer_pids, strict=False))
    text = f"-> {one.peer} {one.state}{f' to {names}' if names else ''}"
    if one.received is None:
        return f"{text}, bytes not known"
    new = one.received - ((before.received or 0) if before else 0)
    return f"{text}, {counted(one.received, 'byte')} received, {new} of them in {seconds:.1f} s"


def _downloads(found: Iterable[Download]) -> Iterator[str]:
    for one in found:
        grown = "grows" if one.grew else "does not grow"
        yield f"{one.path} {counted(one.size, 'byte')}, {grown}"
