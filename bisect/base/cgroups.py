"""What a control group lets a process have of the machine: the limits of a container or of a batch
system, which no counter of the machine itself shows.

Both versions of cgroups (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the
kernel). A limit of any group above counts too.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path, PurePosixPath

from .lazy_dataclass import dataclass

ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Limits:
    """None: no limit, or not known. Bytes; `cores` may be a part of one."""

    cores: float | None = None
    memory: int | None = None
    memory_free: int | None = None  # below that limit; what the page cache would give back counts


def limits(own: str, root: Path = ROOT) -> Limits:
    """Return the limits on the groups in `own`, the text of a /proc/PID/cgroup."""
    cores: list[float] = []
    memory: list[tuple[int, int]] = []  # (free, limit)
    for folder in folders(own, root, {"cpu", "memory"}):
        if (share := _cores(folder)) is not None:
            cores.append(share)
        if (found := _memory(folder)) is not None:
            memory.append(found)
    free, limit = min(memory, default=(None, None))
    return Limits(min(cores, default=None), limit, free)


def count_oom_kills(own: str, root: Path = ROOT) -> int | None:
    """Return how many processes of a group the kernel has ended for want of memory since the group
    was made, None where that is not known: of the innermost of the groups in `own` that has a limit
    (in the second version with all below it), else of the innermost.
    """
    counted: list[int] = []
    for folder in folders(own, root, {"memory"}):
        events = (folder / "memory.events", folder / "memory.oom_control")
        found = [count for file in events if (count := _find_field(file, "oom_kill")) is not None]
        counted += found
        if found and _memory(folder) is not None:
            return max(counted)
    return counted[0] if counted else None


def folders(own: str, root: Path, wanted: Set[str]) -> Iterator[Path]:
    """Yield the folders of the groups in `own`, the text of a /proc/PID/cgroup, that have one of
    the controllers `wanted` (in the second version all have), and of those above them.
    """
    for line in own.splitlines():
        _, colon, rest = line.partition(":")
        names, second, path = rest.partition(":")
        if colon and second and (not names or wanted & {*names.split(",")}):
            yield from _folders(root, names, path)


def _folders(root: Path, names: str, path: str) -> Iterator[Path]:
    """Yield the folder of a group and of those above it, as far as they can be seen from here."""
    controllers = [root / one for one in (names, *names.split(","))] if names else [root]
    top = next((folder for folder in controllers if folder.is_dir()), None)
    if top is None:
        return
    # In a container the path may be the one outside of it; what is mounted is its own group.
    inside = PurePosixPath("/" + path.strip("/")).relative_to("/")
    for part in (inside, *inside.parents):
        if ".." not in part.parts:
            yield top / part


def _cores(folder: Path) -> float | None:
    quota, _, period = (_read_limit_file(folder / "cpu.max") or "").partition(" ")
    if not period:
        quota = _read_limit_file(folder / "cpu.cfs_quota_us") or ""
        period = _read_limit_file(folder / "cpu.cfs_period_us") or ""
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None  # "max"
    return share if share > 0 else None  # -1: no limit


def _memory(folder: Path) -> tuple[int, int] | None:
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, now = _read_limit(folder / limit), _read_limit(folder / used)
        if most is not None and now is not None:
            return max(0, most - now + min(now, _field(folder / "memory.stat", cache))), most
    return None


def _read_limit(path: Path) -> int | None:
    text = _read_limit_file(path)
    return int(text) if text and text.isdecimal() else None


def _field(path: Path, name: str) -> int:
    return _find_field(path, name) or 0


def _find_field(path: Path, name: str) -> int | None:
    for line in (_read_limit_file(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return None


def _read_limit_file(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return None
