"""What decides whether we may read the memory of other processes: Yama, seccomp, capabilities."""

from __future__ import annotations

from dataclasses import dataclass

from ..rank.sight import YAMA

_SYS_PTRACE = 19  # capability(7)


@dataclass(frozen=True)
class Permission:
    """What the kernel says of this process."""

    yama: int | None  # its ptrace_scope; None: it has no Yama
    filtered: bool  # seccomp filters our system calls: containers do
    capable: bool  # CAP_SYS_PTRACE


def permission() -> Permission:
    """Return what this process may do. Raises OSError without a /proc."""
    with open("/proc/self/status", errors="replace") as file:
        status = {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    return Permission(
        yama=_yama(),
        filtered=status.get("Seccomp") == "2",
        capable=bool(int(status.get("CapEff", "0"), 16) >> _SYS_PTRACE & 1),
    )


def _yama() -> int | None:
    try:
        with open(YAMA) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
