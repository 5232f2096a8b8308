"""Files that are there whole or not at all, the time in a folder's name, which rank a file is of,
and on which kind of file system a path is.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping, Sequence

# Our own folder, as ranks spell it, links and all: they start what watches them by this path.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LONGEST = 100  # bytes of its name, in that of the file aside


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file aside, under a name that cannot be foreseen, and rename it: links are replaced,
    not followed. It is for this user alone. Raises OSError, and leaves nothing behind then.
    """
    folder, name = os.path.split(os.fspath(path))
    aside = os.path.join(folder, f".{_cut(name)}.{os.urandom(6).hex()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(aside, flags, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def _cut(name: str) -> str:
    return os.fsencode(name)[:_LONGEST].decode(errors="ignore")


def stamp() -> str:
    """Return the time now in UTC, for a file's name: "20261122T045131Z" (ISO 8601, basic)."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


# "rank-3.txt", "stacks_rank3", "nccl_trace_rank_3", "dump.r3.log".
_NAMED = re.compile(
    r"(?<![a-z])(?<!local[-_.])(?:global[-_.]?)?rank[-_.=]?(\d{1,6})(?!\d)"
    r"|(?<![a-z])r(\d{1,6})(?!\d)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d{1,6}")
_FILE_PARTS = 2  # of a path: its own name, and its folder's ("rank_3/stderr.log")


def by_names(files: Sequence[str]) -> dict[str, int]:
    """Return the ranks of those files whose names tell: each by itself, or all together, where they
    differ in one number alone, and these numbers are 0, 1, 2 ... without a gap.
    """
    found = {file: rank for file in files if (rank := named(file)) is not None}
    return found or dict(_counted(files))


def named(file: str) -> int | None:
    """Return the rank that a path names, None where it names none or several."""
    for part in reversed(file.rsplit("/", _FILE_PARTS)[-_FILE_PARTS:]):
        ranks = {int(a or b) for a, b in _NAMED.findall(part)}
        if ranks:
            return ranks.pop() if len(ranks) == 1 else None
    return None


def _counted(files: Sequence[str]) -> Mapping[str, int]:
    shapes: dict[tuple[str, ...], list[tuple[str, list[str]]]] = {}
    for file in dict.fromkeys(files):
        texts = tuple(_NUMBER.split(file))
        shapes.setdefault(texts, []).append((file, _NUMBER.findall(file)))
    if len(shapes) != 1:
        return {}
    ((_, alike),) = shapes.items()
    columns = list(zip(*(numbers for _, numbers in alike), strict=True))
    differing = [column for column in columns if len(set(column)) > 1]
    if len(alike) < 2 or len(differing) != 1:
        return {}
    ranks = [int(text) for text in differing[0]]
    if sorted(ranks) != list(range(len(ranks))):
        return {}
    return {file: rank for (file, _), rank in zip(alike, ranks, strict=True)}


# Of another machine, or may well be: what several machines see at once.
NETWORK_FILE_SYSTEM = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|lustre|gpfs|beegfs|ceph|glusterfs|afs|9p|pvfs2|orangefs|panfs|wekafs"
    r"|quobyte|fuse\.(?!overlay|fuse-overlayfs|snapfuse|squashfuse|mergerfs|gvfsd|portal|lxcfs)\S+"
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def find_file_system(mountinfo: str, path: str) -> str:
    """Return the kind of the file system that `path`, without links, is on: "nfs4"; "" if it is not
    known. `mountinfo`: the text of /proc/PID/mountinfo (man 5 proc).
    """
    best, kind = "", ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = unescape(fields[4]).rstrip("/")
        if (path == point or path.startswith(point + "/")) and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


def unescape(text: str) -> str:
    r"""Return a path of a table of mounts as it is: a blank stands as \\040 there."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
