"""Kinds of file systems, and which one a path is on."""

from __future__ import annotations

import re

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
