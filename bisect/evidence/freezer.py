"""Whether a process is frozen with its control group: a container that was paused, a job that its
batch system suspended.

No other fact tells: the second version of cgroups leaves it in state S and in its system call, the
first in state D where it was (Linux 6.18).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_FILES = {"cgroup2": "cgroup.events", "cgroup": "freezer.state"}  # both count the groups above


def frozen(pid: int) -> str:
    """Return the group of a process if it is frozen, else ""."""
    groups = parse_groups(_text(Path(f"/proc/{pid}/cgroup")))
    for kind, mounted in parse_mounts(_text(Path("/proc/self/mountinfo"))):
        path = groups.get(kind)
        if path is None:
            continue
        folder = mounted / path.strip("/")
        # In a container the path may be the one outside of it; its own group is what is mounted.
        place = folder if folder.is_dir() else mounted
        if is_frozen(_text(place / _FILES[kind])):
            return str(place)
    return ""


def parse_groups(text: str) -> dict[str, str]:
    """Return the group of each kind in the text of a /proc/PID/cgroup."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            found["cgroup2"] = path
        elif "freezer" in names.split(","):
            found["cgroup"] = path
    return found


def parse_mounts(text: str) -> Iterator[tuple[str, Path]]:
    """Yield (kind, folder) of the mounts in the text of a mountinfo that can tell."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, about = before.split(), after.split()
        if len(fields) < 5 or not about or "\0" in fields[4]:
            continue
        if about[0] == "cgroup2" or (about[0] == "cgroup" and "freezer" in about[-1].split(",")):
            yield about[0], Path(fields[4])


def is_frozen(text: str) -> bool:
    """Return what the text of a cgroup.events or a freezer.state says."""
    return "frozen 1" in text.splitlines() or text.strip() == "FROZEN"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
