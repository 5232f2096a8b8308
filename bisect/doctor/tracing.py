"""Leave to look at another process: without it a hang is located, but its stacks are not seen."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ..base.deadline import run
from ..evidence.process_memory import read_trace_permission
from ..evidence.programs import find_program
from ..evidence.stacks import why_py_spy_cannot_look
from .checks import Check, Family, Finding, Setting, ok, warning

_LOOK = 3.0  # seconds for one look
_CHILD = """
import sys
if sys.argv[1] == "allow":
    import ctypes
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER, any
print(flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Leave:
    """What decides whether another process may be read, and what came of trying it."""

    yama: int | None  # None: the kernel has no Yama
    filtered: bool  # seccomp filters the system calls of this process
    capable: bool  # CAP_SYS_PTRACE
    program: str  # py-spy's path, "" if there is none
    version: str
    refused: str  # why a plain process of ours could not be read, "" if it could
    refused_allowing: str  # the same for one that allows it, as hangbisect's own ranks do


def read(setting: Setting) -> Leave:
    """Try py-spy on processes of our own, which end when their input does."""
    own = read_trace_permission()
    spy = find_program() or ""
    refused = allowing = "py-spy is not installed"
    if spy:
        refused = allowing = _try("plain")
        if refused:
            allowing = _try("allow")
    return Leave(
        yama=own.yama,
        filtered=own.filtered,
        capable=own.capable,
        program=spy,
        version=_version(spy) if spy else "",
        refused=refused,
        refused_allowing=allowing,
    )


def _try(how: str) -> str:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CHILD, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C on the terminal is ours alone
    ) as child:
        if child.stdout is None or not child.stdout.readline():
            return "a Python of our own ended at once"
        return asyncio.run(why_py_spy_cannot_look(child.pid, _LOOK))


def _version(spy: str) -> str:
    with contextlib.suppress(OSError):
        return run([spy, "--version"], _LOOK).out.decode(errors="replace").strip()
    return ""


# ---- judged --------------------------------------------------------------------------------------


def installed(setting: Setting, facts: Leave) -> Iterator[Finding]:
    """Judge whether py-spy is there and runs."""
    if not facts.program:
        yield warning(
            "py-spy is not installed next to this Python, nor on the PATH: no Python stacks",
            f"{sys.executable} -m pip install py-spy",
        )
    elif not facts.version:
        yield warning(
            f"{facts.program} does not run (another architecture? a disk mounted noexec?)",
            "pip install --force-reinstall py-spy",
        )
    else:
        yield ok(f"{facts.version}, {facts.program}")


def leave(setting: Setting, facts: Leave) -> Iterator[Finding]:
    """Judge whether a process can be looked at, and say what would allow it."""
    around = ", ".join(_around(facts))
    if not facts.program:
        yield Finding("unknown", f"nothing to try it with ({around})")
    elif not facts.refused:
        yield ok(f"py-spy reads a process of ours ({around})")
    elif facts.yama == 1 and not facts.refused_allowing:
        yield warning(
            f"only ranks that hangbisect starts can be read, for these allow it ({around})",
            "to attach to others: sudo sysctl kernel.yama.ptrace_scope=0, or run it as root",
        )
    else:
        yield warning(f"no stacks of other processes: {facts.refused} ({around})", _way(facts))


def _around(facts: Leave) -> Iterator[str]:
    yield "no Yama" if facts.yama is None else f"Yama ptrace_scope={facts.yama}"
    yield "seccomp filters" if facts.filtered else "no seccomp filter"
    yield "with CAP_SYS_PTRACE" if facts.capable else "without CAP_SYS_PTRACE"


def _way(facts: Leave) -> str:
    if facts.yama == 3:
        return "ptrace_scope=3 lasts until the next boot: only /proc is read until then"
    if facts.yama == 2 and not facts.capable:
        return "as root, or sudo sysctl kernel.yama.ptrace_scope=1"
    if facts.filtered:
        return (
            "docker run --cap-add=SYS_PTRACE (Kubernetes: securityContext.capabilities.add "
            '["SYS_PTRACE"]); without it, only what /proc shows'
        )
    return "look as the job's own user or as root; without it, only what /proc shows"


FAMILY = Family(
    "Looking at a job",
    (
        Check(
            id="py-spy",
            title="py-spy is there",
            why="Without it the stack of a rank that hangs is not seen from outside.",
            read=read,
            judge=installed,
        ),
        Check(
            id="leave-to-trace",
            title="another process may be read",
            why="Yama, seccomp and missing capabilities forbid it; tried on a process of our own.",
            read=read,
            judge=leave,
        ),
    ),
)
