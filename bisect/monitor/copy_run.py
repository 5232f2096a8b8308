"""Take a run folder for a run, and copy its new files there, each set aside and renamed.

A program of its own (python -I -S copy_run.py REQUEST): it may hang on the file system, and then
its starter gives up on it. REQUEST and what it prints are JSON: see publish().

The folder may belong to others, to a group that shares its runs: links that other users made are
not followed, names that were there before are replaced and never written to, and what we make is
for this user alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the module takes 3 ms, and this one begins in each start of a job
    from typing import Any

ROOM = 1 << 20  # bytes that must be free
OURS = (
    *("verdict.json", "evidence.json", "environment.json", "events.jsonl"),
    *("node.json", "report.md", "report.html", "trace.json"),
)
# A folder with these is a run's; with others it may be anything, and nothing is removed from it.
MARKS = (("events.jsonl",), ("verdict.json", "environment.json"))  # watched; looked at by attach
LOCK = ".lock"  # held by who writes in the folder
MOST_FOLDERS = 50  # DIR, DIR-2, ...
_LOCK_LIMIT = 0.5  # seconds for who has just taken the lock to write who it is
_MOST_LINKS = 40  # of a path (path_resolution(7))
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EINVAL, errno.ENOLCK)


class Busy(Exception):
    """Another run writes in the folder."""


def publish(asked: dict[str, Any], files: dict[str, str] | None = None) -> dict[str, str]:
    """Copy what is new below `stage`, or the texts `files`, to the run folder, and return what was
    done: `folder`, and `trouble`, which is "" if all went well.

    `asked`: `stage`; `base` and what is `inside` it (["node-1", "attempt-2"]), the run folder; the
    `run` that it is taken for ("" if it was before); whether to `clear` what an earlier run left,
    and whether this one `adds` to what others of the same run wrote; `since` when it began (seconds
    of the wall clock); whether it `is_temporary`, and goes again where nothing can be written;
    `socket`, over which a descriptor that holds the folder's lock is sent.
    """
    folder = os.path.join(asked["base"], *asked["inside"])
    try:
        if asked["run"]:
            folder, is_to_clear = _take(asked)
            if is_to_clear:
                prepare(folder)
        if files is None:
            copy(asked["stage"], folder)
        else:
            write(files, folder)
    except OSError as error:
        if asked["is_temporary"]:
            _remove_empty(folder)
        where = error.filename if isinstance(error.filename, str) else folder
        where = where if os.path.isabs(where) else folder
        return {"folder": folder, "trouble": f"{where}: {error.strerror or error}"}
    return {"folder": folder, "trouble": ""}


def _remove_empty(folder: str) -> None:
    """Remove a folder that we made in one for temporary files, if nothing came to be written; and
    the one of all our runs there, if this was the first.
    """
    with contextlib.suppress(OSError):
        if not os.stat(os.path.join(folder, LOCK)).st_size:
            os.unlink(os.path.join(folder, LOCK))
    with contextlib.suppress(OSError):  # there is something in it
        os.rmdir(folder)
        os.rmdir(os.path.dirname(folder))
        os.rmdir(os.path.dirname(folder))


def copy(stage: str, folder: str) -> None:
    """Copy every file below `stage` that is newer or of another size than in `folder`."""
    top = open_folder(folder)
    try:
        for root, _, names in os.walk(stage, onerror=_fail):
            inside = os.path.relpath(root, stage)
            target = top if inside == "." else open_inside(top, inside)
            for name in names:
                if not name.startswith("."):
                    _copy_file(os.path.join(root, name), target, name)
            if target != top:
                os.close(target)
    finally:
        os.close(top)


def write(files: dict[str, str], folder: str) -> None:
    """Write these texts, by name, to `folder`."""
    top = open_folder(folder)
    try:
        for path, text in files.items():
            inside, _, name = path.rpartition("/")
            target = open_inside(top, inside) if inside else top
            _put(target, name, [text.encode(errors="replace")], None)
            if target != top:
                os.close(target)
    finally:
        os.close(top)


def prepare(folder: str) -> None:
    """Remove what an earlier run left in `folder`: it would be taken for this one's.

    Raises OSError if a run does not fit.
    """
    top = open_folder(folder)
    try:
        room = os.fstatvfs(top)
        if room.f_bavail * room.f_frsize < ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
        if any(all(_exists(top, one) for one in marks) for marks in MARKS):
            import shutil

            shutil.rmtree("stacks", ignore_errors=True, dir_fd=top)
            for name in OURS:
                if _exists(top, name):
                    os.unlink(name, dir_fd=top)
    finally:
        os.close(top)


# ---- folders ---------------------------------------------------------------------------------


def open_folder(path: str) -> int:
    """Return the descriptor of a folder, made for this user alone if it is not there.

    Links are followed if they are this user's or root's: with one of another user's, that user
    would say where our files go.

    Raises OSError.
    """
    names = path.split("/")[::-1]
    at = os.open("/" if path.startswith("/") else ".", os.O_PATH | os.O_DIRECTORY)
    links = 0
    try:
        while names:
            name = names.pop()
            if name in ("", "."):
                continue
            found = _open_or_make(name, at, path)
            kind = os.fstat(found)
            if stat.S_ISLNK(kind.st_mode):
                target = os.readlink("", dir_fd=found)
                os.close(found)
                links += 1
                if kind.st_uid not in (0, os.geteuid()) or links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, f"{name} is a link of user {kind.st_uid}", path)
                names += target.split("/")[::-1]
                if not target.startswith("/"):
                    continue
                found = os.open("/", os.O_PATH | os.O_DIRECTORY)
            elif not stat.S_ISDIR(kind.st_mode):
                os.close(found)
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            os.close(at)
            at = found
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
    finally:
        os.close(at)


def open_inside(top: int, path: str) -> int:
    """Return the descriptor of a folder below `top`, made if it is not there; follow no link."""
    at = os.dup(top)
    for name in path.split("/"):
        before = at
        try:
            at = _open_or_make(name, before, path, os.O_RDONLY | os.O_DIRECTORY)
        finally:
            os.close(before)
    return at


def _open_or_make(name: str, at: int, path: str, flags: int = os.O_PATH) -> int:
    for is_made in (False, True):
        try:
            return os.open(name, flags | os.O_NOFOLLOW, dir_fd=at)
        except FileNotFoundError:
            if is_made:
                raise
        except OSError as error:
            raise type(error)(error.errno, error.strerror, path) from None
        try:
            os.mkdir(name, 0o700, dir_fd=at)
        except FileExistsError:
            pass
        except OSError as error:
            raise type(error)(error.errno, error.strerror, path) from None
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        return True
    except FileNotFoundError:
        return False


def _fail(error: OSError) -> None:
    raise error


# ---- files -----------------------------------------------------------------------------------


def _copy_file(source: str, folder: int, name: str) -> None:
    with open(os.open(source, os.O_RDONLY | os.O_NOFOLLOW), "rb") as reader:
        here = os.fstat(reader.fileno())
        try:
            there = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if (there.st_size, there.st_mtime_ns) == (here.st_size, here.st_mtime_ns):
                return
        except FileNotFoundError:
            pass
        times = here.st_atime_ns, here.st_mtime_ns
        _put(folder, name, iter(lambda: reader.read(1 << 20), b""), times)


def _put(folder: int, name: str, blocks: Any, times: tuple[int, int] | None) -> None:
    """Write a whole file: aside, under a name that cannot be foreseen, then renamed."""
    aside = f".{name[:100]}.{os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(aside, flags, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb") as writer:
            for block in blocks:
                writer.write(block)
            writer.flush()
            if times is not None:
                os.utime(descriptor, ns=times)
        os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(aside, dir_fd=folder)
        raise


# ---- one run a folder ------------------------------------------------------------------------


def _take(asked: dict[str, Any]) -> tuple[str, bool]:
    """Take the run folder, or the next one beside it in which no other run writes, and send the
    lock; return it, and whether what an earlier run left there is to be removed.

    The lock is that of the whole run: of its attempts too, which have a folder each.
    """
    inside = list(asked["inside"])
    further = [inside.pop()] if inside and inside[-1].startswith("attempt-") else []
    why: Exception = Busy()
    is_first = False
    homes = [
        os.path.join(numbered(asked["base"], number), *inside)
        for number in range(1, MOST_FOLDERS + 1)
    ]
    if further:  # of the folder that the first attempt had
        homes = [home for home in homes if _taken_for(home) == asked["run"]] or homes
    for home in homes:
        folder = open_folder(home)
        try:
            last = _taken_for(home)
            if last != asked["run"] and _is_written_since(folder, asked["since"]):
                continue  # a run beside ours that is over: on another node, perhaps
            lock, is_first = lock_folder(folder, asked["run"])
        except Busy as error:
            why = error
            continue
        finally:
            os.close(folder)
        if lock is not None:
            if asked["socket"] is not None:
                import socket

                with socket.socket(fileno=asked["socket"]) as way:
                    socket.send_fds(way, [b"lock"], [lock])
            os.close(lock)
        is_ours = asked["adds"] and last == asked["run"]
        is_to_clear = asked["clear"] and not is_ours and (is_first or bool(further))
        return os.path.join(home, *further), is_to_clear
    raise OSError(errno.EBUSY, f"in {MOST_FOLDERS} folders of this name {why}", asked["base"])


def _is_written_since(folder: int, since: float) -> bool:
    """Return whether a verdict was written into an open folder after `since` (seconds of the wall
    clock): that run began when ours was under way, or ends with it.
    """
    try:
        return os.stat("verdict.json", dir_fd=folder, follow_symlinks=False).st_mtime >= since
    except OSError:
        return False


def _taken_for(home: str) -> str:
    """Return for which run a folder was taken last, "" if that is not known."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(os.path.join(home, LOCK), flags)
    except OSError:
        return ""
    try:
        return os.pread(descriptor, 1 << 12, 0).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def numbered(base: str, number: int) -> str:
    """Return the folder beside `base` with this number; the first is `base`."""
    if number == 1:
        return base
    base = base.rstrip("/")
    if os.path.basename(base) in ("", ".", ".."):
        return os.path.join(base or "/", f"run-{number}")
    return f"{base}-{number}"


def lock_folder(folder: int, run: str) -> tuple[int | None, bool]:
    """Lock an open folder for `run`; return a descriptor that holds the lock, None where the file
    system has no locks, and whether no other process of that run holds it.

    Raises Busy if another run does, OSError if the folder cannot be written.
    """
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = os.open(LOCK, flags, 0o600, dir_fd=folder)
    except OSError as error:
        if _exists(folder, LOCK) and error.errno != errno.EROFS:  # another user's, a link, a folder
            raise Busy(f"{LOCK} is not ours") from None
        raise
    is_kept = False
    try:
        if not stat.S_ISREG(os.fstat(lock).st_mode):
            raise Busy(f"{LOCK} is not ours")
        is_new = _lock(lock, run)
        is_kept = True
        return lock, is_new
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None, True
        raise
    finally:
        if not is_kept:
            os.close(lock)


def _lock(lock: int, run: str) -> bool:
    until = time.monotonic() + _LOCK_LIMIT
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            whose = os.pread(lock, 1 << 12, 0).decode(errors="replace").strip()
        else:
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{run}\n".encode(), 0)
            _share(lock)
            return True
        if whose == run:
            _share(lock)
            return False
        if whose or time.monotonic() > until:
            raise Busy("another run writes")
        time.sleep(0.01)


def _share(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # another process came between: to change a lock gives it back first
        raise Busy("another run writes") from None


def main() -> int:
    """Do what is asked for as JSON in the first argument; texts of files may come on stdin."""
    asked = json.loads(sys.argv[1])
    files = json.load(sys.stdin) if asked["stage"] is None else None
    print(json.dumps(publish(asked, files)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
