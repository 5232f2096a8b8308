"""Machines that are reached by ssh, and have the same files as this one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from ...errors import UsageError
from ...evidence.programs import executable
from .node import Elsewhere, Node
from .ourselves import asking

CONNECTING = 10  # seconds until a host that does not answer is given up


def hosts(text: str, span: float | None, only: Mapping[str, str] | None = None) -> Elsewhere:
    """Return the hosts in "a,b". Raises UsageError for none, and where there is no ssh."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    wrong = [name for name in names if name.startswith("-") or len(name.split()) > 1]
    if not names or wrong:
        raise UsageError(
            f"--hosts cannot be {text!r}: it is names, separated by commas",
            "hangbisect attach --hosts node1,node2",
        )
    if executable("ssh") is None:
        raise UsageError("there is no ssh here", "On each host: hangbisect attach")
    nodes = tuple(Node(name, (command(name, span, only),), _paste(name)) for name in names)
    says = f"the job on {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}"
    return Elsewhere(nodes, says, "on each host, hangbisect attach PID --kill")


def command(name: str, span: float | None, only: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the words that ask one host. Never a password's prompt: nobody would see it."""
    remote = shlex.join(asking(span, only))
    options = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECTING}", "-T")
    return ("ssh", *options, name, remote)


def _paste(name: str) -> str:
    return f"ssh {shlex.quote(name)} hangbisect attach"
