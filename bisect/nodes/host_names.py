"""The names of nodes that a person gives, "n[001-064],login,2001:db8::7", as a list; and the nodes
of the Slurm allocation that we are started in.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ..attach.nodes import SLURM_LIMIT, run_program
from ..base.errors import UsageError

MOST_NODES = 20_000  # a larger range is a typing error
_HELP = "hangbisect nodes --hosts n1,n2,n[05-16]"
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.%-]*[A-Za-z0-9_])?")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[\]]*\])")


def read_host_names(text: str) -> tuple[str, ...]:
    """Return the names in "n[1-3,07],m", in their order.

    Raises UsageError for less than two, a name that stands twice or is none, and a range that is
    wrong or too large.
    """
    parts = [part.strip() for part in _OUTSIDE_BRACKETS.split(text) if part.strip()]
    names: list[str] = []
    for part in parts:
        for name in _expand(part):
            names.append(_check_name(name, text))
            if len(names) > MOST_NODES:
                raise UsageError(f"--hosts names more than {MOST_NODES} nodes: {part!r}", _HELP)
    return check_nodes(names, "--hosts")


def check_nodes(names: Sequence[str], source: str) -> tuple[str, ...]:
    """Return the names. Raises UsageError for less than two, or one that stands twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UsageError(f"{source} names {', '.join(twice[:4])} twice", "Name each node once.")
    if len(names) < 2:
        named = f"only {names[0]}" if names else "no node"
        raise UsageError(
            f"{source} names {named}: to tell a bad node from a good one takes two at least, and "
            "three to tell it from a link",
            _HELP,
        )
    return tuple(names)


def _check_name(name: str, text: str) -> str:
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        pass
    if _NAME.fullmatch(name) is None:
        why = " (it would be an option)" if name.startswith("-") else ""
        raise UsageError(f"--hosts cannot have {name[:80]!r} in it{why}: it is no name", _HELP)
    return name


def _expand(part: str) -> Iterator[str]:
    """Yield the names in "n[1-3,07]-ib": each range in brackets, the last one the fastest."""
    before, bracket, rest = part.partition("[")
    if not bracket or ":" in rest.partition("]")[0]:  # an IPv6 address in brackets
        yield part
        return
    inside, closed, after = rest.partition("]")
    if not closed:
        raise UsageError(f"--hosts has a bracket that is not closed: {part[:80]!r}", _HELP)
    for number in _list_numbers(inside, part):
        for end in _expand(after):
            yield f"{before}{number}{end}"


def _list_numbers(inside: str, part: str) -> Iterator[str]:
    for one in inside.split(","):
        found = _RANGE.fullmatch(one.strip())
        if found is None:
            raise UsageError(f"--hosts cannot have the range [{inside[:80]}] in it", _HELP)
        first, last = found[1], found[2] or found[1]
        size = int(last) - int(first) + 1 if len(last) < 10 else MOST_NODES + 1
        if size < 1 or size > MOST_NODES:
            what = "ends before it begins" if size < 1 else f"has more than {MOST_NODES} names"
            raise UsageError(f"--hosts has a range that {what}: {part[:80]!r}", _HELP)
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"


def read_slurm_nodes(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the nodes of the allocation that we are started in.

    Raises UsageError where there is none, or only one node in it; HangbisectError where scontrol
    does not answer.
    """
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not environ.get("SLURM_JOB_ID") or not listed:
        raise UsageError(
            "this is no allocation of Slurm's (no SLURM_JOB_ID), and --hosts names no nodes",
            "Start it in one (salloc --nodes=4 hangbisect nodes), or name nodes: "
            "hangbisect nodes --hosts n1,n2,n3",
        )
    command = ("scontrol", "show", "hostnames", listed)
    printed = asyncio.run(run_program(command, SLURM_LIMIT, "Name the nodes with --hosts."))
    return check_nodes(printed.decode(errors="replace").split(), f"Slurm's {listed}")
