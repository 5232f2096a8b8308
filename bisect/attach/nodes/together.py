"""What several machines tell of one job, so that it can be judged as one. Pure.

Two machines (and two pods of one image always) may have processes of the same number: they are
told apart by numbers of our own while they are judged. Stand-ins for ranks whose numbers are not
known are each machine's own, and would be taken for another's ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from ...diagnosis.syscalls import CHILDREN
from ...facts import Syscall
from ..node_facts import NodeFacts

T = TypeVar("T")

_STEP = 10**12  # pids have at most seven digits (PID_MAX_LIMIT, 4194304)
_MARKED = re.compile(r"(?<![\w.])[1-9]\d{0,4}00000(\d{7})(?![\w.])")
# The fields that hold numbers of processes or threads.
_PIDS = frozenset(
    [
        *("pid", "ppid", "os_id", "tid", "peer_pids", "other_ends", "holder", "traced_by", "owner"),
        *("pids", "launcher", "notebook"),
    ]
)
_ANY_CHILD = (0,)  # in place of the arguments of a call that name a process
_STAND_INS = 1 << 20


def together(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines with processes and ranks that are told apart, and without ranks that an
    earlier one has as well: of these a note says so.
    """
    whole = len(nodes) == 1
    taken = {r.rank for n in nodes for r in n.ranks if r.rank not in n.unnumbered}
    free = iter(sorted(set(range(max((n.world for n in nodes), default=0))) - taken))
    beyond = iter(range(_STAND_INS, 2 * _STAND_INS))
    seen: dict[int, str] = {}
    found = []
    for at, node in enumerate(nodes):
        numbers = {r: next(free, next(beyond)) for r in node.unnumbered}
        one = _renumbered(node, numbers) if numbers and not whole else node
        one = _without_doubles(one, seen)
        found.append(marked(one, at) if at else one)
    return found


def _renumbered(node: NodeFacts, numbers: Mapping[int, int]) -> NodeFacts:
    def new(ranks: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(numbers.get(rank, rank) for rank in ranks))

    return replace(
        node,
        ranks=tuple(replace(r, rank=numbers.get(r.rank, r.rank)) for r in node.ranks),
        unnumbered=new(node.unnumbered),
        moving=new(node.moving),
        busy=new(node.busy),
        quiet=new(node.quiet),
    )


def _without_doubles(node: NodeFacts, seen: dict[int, str]) -> NodeFacts:
    doubles = sorted({r.rank for r in node.ranks} & seen.keys())
    for facts in node.ranks:
        seen.setdefault(facts.rank, node.host)
    if not doubles:
        return node
    first = doubles[0]
    note = (
        f"rank {first} runs on {seen[first]} and on {node.host}: two jobs, or two starts of one; "
        f"{len(doubles)} ranks of {node.host} were left out"
    )
    return replace(
        node,
        ranks=tuple(r for r in node.ranks if r.rank not in doubles),
        notes=(*node.notes, note),
    )


def marked(node: NodeFacts, at: int) -> NodeFacts:
    """Return a machine with the numbers of its processes marked as those of machine `at`."""

    def changed(value: Any, is_pid: bool) -> Any:
        if isinstance(value, Syscall) and value.name in CHILDREN:
            return replace(value, args=_ANY_CHILD)
        return value + at * _STEP if is_pid and type(value) is int and value > 0 else value

    return _mapped(node, changed)


def unmarked(value: T) -> T:
    """Return facts, or a verdict on them, with the numbers that processes really have."""
    return _mapped(value, _restored)


def _restored(value: Any, is_pid: bool) -> Any:
    if isinstance(value, str):
        return _MARKED.sub(lambda match: str(int(match[1])), value)
    return value % _STEP if is_pid and type(value) is int else value


def _mapped(value: T, change: Callable[[Any, bool], Any], is_pid: bool = False) -> T:
    """Return facts with everything in them changed, the outer before the inner: `change` gets each
    value, and whether it is of a field that holds numbers of processes.
    """
    found: Any = change(value, is_pid)
    if is_dataclass(found) and not isinstance(found, type):
        names = [one.name for one in fields(found) if one.init]
        inside = {n: _mapped(getattr(found, n), change, n in _PIDS) for n in names}
        return cast(T, replace(found, **inside))
    if isinstance(found, tuple):
        return cast(T, tuple(_mapped(item, change, is_pid) for item in found))
    return cast(T, found)
