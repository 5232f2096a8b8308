"""Whether every node reaches every other."""

from __future__ import annotations

from collections.abc import Iterator

from ..report.words import counted, seconds
from .finding import Check, Family, Finding, Setting, ok, problem, unknown
from .meeting import Meeting, read

_OPEN = "open all ports between the nodes (NCCL and gloo take any), or NCCL_SOCKET_IFNAME elsewhere"


def connected(setting: Setting, facts: Meeting) -> Iterator[Finding]:
    """Judge whether this node reached all others."""
    if facts.nodes < 2:
        yield ok("one node")
    elif not setting.is_launched:
        each = f"srun --nodes={facts.nodes} --ntasks-per-node=1 hangbisect doctor"
        yield Finding("unknown", f"not tried: this is one of {facts.nodes} nodes alone", each)
    elif not setting.place.master:
        yield unknown("not tried: without MASTER_ADDR nobody knows where to meet")
    elif facts.unnamed:
        yield unknown(f"not tried: {setting.place.master} is not known here")
    elif facts.error:
        yield problem(f"{facts.error}, within {seconds(facts.waited)}", _OPEN)
    else:
        yield from _met(facts)


def _met(facts: Meeting) -> Iterator[Finding]:
    failed = [one for one in facts.reached if one.error]
    for one in failed:
        who = f"node {one.member.node} ({one.member.host}, {one.member.address}:{one.member.port})"
        yield problem(f"from here {who} is not reached: {one.error}", _OPEN)
    if facts.missing:
        others = facts.nodes - 1
        came = ", ".join(one.member.host for one in facts.reached[:8]) or "none"
        yield problem(
            f"{facts.missing} of {counted(others, 'other node')} did not come to {facts.place} "
            f"within {seconds(facts.waited)}; came: {came}",
            "see what the doctor says there, or whether it was started there at all",
        )
    if not failed and not facts.missing:
        slowest = max(facts.reached, key=lambda one: one.seconds)
        yield ok(
            f"all {counted(len(facts.reached), 'other node')} reached, the slowest "
            f"{slowest.member.host} in {slowest.seconds * 1000:.0f} ms; met at {facts.place}"
        )


FAMILY = Family(
    "Between nodes",
    (
        Check(
            id="nodes",
            title="every node reaches every other",
            why="A firewall between two nodes lets them meet at rank 0 and hang in the first "
            "collective.",
            read=read,
            judge=connected,
        ),
    ),
)
