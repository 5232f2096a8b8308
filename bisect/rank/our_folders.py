"""Folders of our own on the node's disk: made by us alone, and where to make them.

Another local user may have been there first with a folder or a link of the same name: what is not
a folder of this user, closed to all others, is never used.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping

LONGEST_SOCKET_PATH = 100  # bytes: sun_path has 108 (unix(7))
OWNER_LINK = "owner"  # in a monitor's folder: a link to the socket that marks its run
_TRIES = 20  # names, before a folder is given up


def bases(environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield the folders in which one of ours may be made, the best first.

    XDG_RUNTIME_DIR is the last: logind removes it with all that is in it when its user logs out
    (pam_systemd(8)), and jobs outlive logins.
    """
    seen: set[str] = set()
    for base in ("/dev/shm", environ.get("TMPDIR"), "/tmp", environ.get("XDG_RUNTIME_DIR")):
        if base and os.path.isabs(base) and base not in seen:
            seen.add(base)
            yield base


def is_own_folder(folder: str) -> bool:
    """Return whether `folder` is a real folder of this user that no other user may enter.

    Raises OSError if it is not there.
    """
    found = os.lstat(folder)
    return (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    )


def make(folder: str) -> None:
    """Make `folder` for this user alone, or take one that is so already.

    Raises OSError where that is not possible, FileExistsError if what is there is another user's.
    """
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not is_own_folder(folder):
            raise FileExistsError(
                17, "it is not a folder of ours alone (owner, or open to others)", folder
            ) from None


def holds_nothing(folder: str) -> bool:
    """Return whether no file below `folder` has a byte in it."""
    return not any(
        os.lstat(os.path.join(root, name)).st_size
        for root, _, names in os.walk(folder)
        for name in names
    )


def make_new(prefix: str, longest_name: str = "", environ: Mapping[str, str] = os.environ) -> str:
    """Make a folder that was not there, named `prefix` and something random; return its path.

    It is in the first of bases() that can be written and where the path of a file `longest_name` in
    it still fits a Unix socket. Raises OSError, with what spoke against the last base, if there is
    none.
    """
    why: OSError = FileNotFoundError(2, "no folder for files of ours")
    for base in bases(environ):
        try:
            return make_new_in(base, prefix, longest_name)
        except OSError as error:
            why = error
    raise why


def make_new_in(base: str, prefix: str, longest_name: str = "") -> str:
    """Do the same in the folder `base` alone. Raises OSError if it is not possible there."""
    for _ in range(_TRIES):
        folder = os.path.join(base, prefix + os.urandom(6).hex())
        path = os.path.join(folder, longest_name) if longest_name else ""
        if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
            break
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue
        with contextlib.suppress(OSError):  # a umask that takes our own leave away
            os.chmod(folder, 0o700)
        return folder
    raise FileNotFoundError(2, f"no folder for files of ours in {base}")
