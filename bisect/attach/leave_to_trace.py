"""Why the stack of a process may not be read, and the ways to one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ..evidence.permission import permission


@dataclass(frozen=True)
class Leave:
    """What decides whether we may read the memory of other processes."""

    uid: int
    may_trace_all: bool  # CAP_SYS_PTRACE
    yama: int  # the kernel's ptrace_scope; 0 where it has no Yama
    seccomp: bool  # a filter is on us: containers have one
    container: bool


def leave() -> Leave:
    """Return what this process may do."""
    own = permission()
    return Leave(
        uid=os.geteuid(),
        may_trace_all=own.capable,
        yama=own.yama or 0,
        seccomp=own.filtered,
        container=_in_a_container(),
    )


def why_not(own: Leave, uid: int) -> str:
    """Return what forbids to trace a process of user `uid`: "other user", "yama", "seccomp", or
    "not permitted" where none of these explains it.
    """
    if uid != own.uid and not own.may_trace_all:
        return "other user"
    if own.yama >= 3 or (own.yama >= 1 and not own.may_trace_all):
        return "yama"
    return "seccomp" if own.seccomp else "not permitted"


def ways(why: str, own: Leave, pid: int, environ: Mapping[str, str], uid: int) -> list[str]:
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


def _in_a_container() -> bool:
    marks = ("/.dockerenv", "/run/.containerenv")
    return any(map(os.path.exists, marks)) or bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
