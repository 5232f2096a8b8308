"""Copy a run's new files to the run folder, each set aside and renamed.

A program of its own (python -I -S copy_run.py STAGE FOLDER [first]): it may hang on the file
system, and then its starter gives up on it. Prints nothing if all went well, else one line that
says what did not.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys

ROOM = 1 << 20  # bytes that must be free
OURS = (
    *("verdict.json", "evidence.json", "environment.json", "events.jsonl"),
    *("report.md", "report.html", "trace.json"),
)
# A folder with these is a run's; with others it may be anything, and nothing is removed from it.
MARKS = (("events.jsonl",), ("verdict.json", "environment.json"))  # watched; looked at by attach


def copy(stage: str, folder: str) -> None:
    """Copy every file below `stage` that is newer or of another size than in `folder`."""
    os.makedirs(folder, exist_ok=True)
    for root, _, names in os.walk(stage):
        target = os.path.join(folder, os.path.relpath(root, stage))
        os.makedirs(target, exist_ok=True)
        for name in names:
            if not name.startswith("."):
                _copy_file(os.path.join(root, name), os.path.join(target, name))


def prepare(folder: str) -> None:
    """Make `folder`, and remove what an earlier run left there: it would be taken for this one's.

    Raises OSError if a run does not fit.
    """
    os.makedirs(folder, exist_ok=True)
    room = os.statvfs(folder)
    if room.f_bavail * room.f_frsize < ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
    if any(all(os.path.exists(os.path.join(folder, one)) for one in marks) for marks in MARKS):
        shutil.rmtree(os.path.join(folder, "stacks"), ignore_errors=True)
        for name in OURS:
            if os.path.exists(os.path.join(folder, name)):
                os.unlink(os.path.join(folder, name))


def _copy_file(source: str, target: str) -> None:
    here = os.stat(source)
    try:
        there = os.stat(target)
        if (there.st_size, there.st_mtime_ns) == (here.st_size, here.st_mtime_ns):
            return
    except FileNotFoundError:
        pass
    aside = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.new")
    with open(source, "rb") as reader, open(aside, "wb") as writer:
        while block := reader.read(1 << 20):
            writer.write(block)
    os.utime(aside, ns=(here.st_atime_ns, here.st_mtime_ns))
    os.replace(aside, target)


if __name__ == "__main__":
    try:
        if sys.argv[3:] == ["first"]:
            prepare(sys.argv[2])
        copy(sys.argv[1], sys.argv[2])
    except OSError as error:
        print(f"{error.filename or sys.argv[2]}: {error.strerror}")
