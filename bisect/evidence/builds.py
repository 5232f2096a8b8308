"""What a process compiles, and how far that is: from its command line, the folder that ninja builds
in, and the folder in which a library keeps what it has compiled.

The files may lie on a disk that does not answer: only call it with a limit.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import time
from collections.abc import Iterator, Sequence
from itertools import islice

from ..base.compilers import (
    find_cache_folder,
    find_compiled_file,
    find_compiling_frame,
    is_builder,
    name_compiler,
    name_worker,
)
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Build, Frame
from .process import uid_of, variables_of

MOST_FILES = 20_000  # of a folder that are counted
_LARGEST = 1 << 22  # bytes of a file of ninja's that are read
# "build OUTPUT [further outputs]: RULE [inputs]"; "$" escapes what follows it (ninja's manual).
_EDGE = re.compile(
    r"^build (?P<output>(?:[^\s:$]|\$.)+)(?:[^:$\n]|\$.|\$\n)*:\s+(?P<rule>\S+)", re.MULTILINE
)
_ESCAPED = re.compile(r"\$(.)")


@dataclass(frozen=True)
class SeenProcess:
    """What a look knows of a process before its files are read."""

    pid: int
    name: str  # comm
    command: Sequence[str]
    age: float  # seconds
    frames: Sequence[Frame]  # of its main thread, innermost first


def read_build(seen: SeenProcess) -> Build | None:
    """Return what a process compiles, None if it compiles nothing, or is gone."""
    try:
        if name := name_compiler(seen.name, seen.command):
            return _read_build_of_program(seen, name)
        if worker := name_worker(seen.command):
            return Build(worker)
        return _read_build_in_process(seen)
    except (OSError, KeyError, ValueError):
        return None


def _read_build_of_program(seen: SeenProcess, name: str) -> Build:
    if not is_builder(name):
        return Build(name, find_compiled_file(seen.command))
    folder = find_build_folder(seen.command, os.readlink(f"/proc/{seen.pid}/cwd"))
    done, steps = read_ninja_steps(folder, time.time() - seen.age)
    files, size = measure_folder(folder)
    return Build(name, os.path.basename(folder), folder, done, steps, files, size)


def _read_build_in_process(seen: SeenProcess) -> Build | None:
    found = find_compiling_frame(seen.frames)
    if found is None:
        return None
    frame, row = found
    uid = uid_of(seen.pid)
    user = pwd.getpwuid(uid).pw_name if uid is not None else ""
    folder = find_cache_folder(row, variables_of(seen.pid) or {}, user)
    files, size = measure_folder(folder) if folder else (None, None)
    what = f"{frame.file.rpartition('/')[2]}:{frame.line}"
    return Build(row.name, what, folder, None, None, files, size)


def find_build_folder(command: Sequence[str], working: str) -> str:
    """Return the folder in which ninja or make builds: what -C names, or the working one."""
    for n, word in enumerate(command):
        if word == "-C" and n + 1 < len(command):
            return os.path.normpath(os.path.join(working, command[n + 1]))
        if word.startswith("-C") and len(word) > 2:
            return os.path.normpath(os.path.join(working, word[2:]))
    return working


def read_ninja_steps(folder: str, began: float) -> tuple[int | None, int | None]:
    """Return how many steps of a build in `folder` are done since `began` (seconds since the
    epoch), and of how many that have not been done before; None where ninja has no files there.

    .ninja_log has a line for each output of a step that is done (ninja's manual, "The Ninja log"),
    of this build and of earlier ones: the output's own time tells them apart.
    """
    try:
        outputs = parse_build_file(_read_build_file(os.path.join(folder, "build.ninja")))
    except OSError:
        return None, None
    try:
        logged = parse_ninja_log(_read_build_file(os.path.join(folder, ".ninja_log")))
    except OSError:
        logged = frozenset()
    done = before = 0
    for output in outputs:
        if output in logged:
            is_new = _modified_at(os.path.join(folder, output)) >= began - 1.0
            done, before = done + is_new, before + (not is_new)
    return done, len(outputs) - before


def parse_build_file(text: str) -> frozenset[str]:
    """Return the first output of each step of a build.ninja; phony ones make nothing."""
    return frozenset(
        _ESCAPED.sub(r"\1", match["output"])
        for match in _EDGE.finditer(text)
        if match["rule"] != "phony"
    )


def parse_ninja_log(text: str) -> frozenset[str]:
    """Return the outputs that a .ninja_log names: the fourth field of each line."""
    fields = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return frozenset(one[3] for one in fields if len(one) >= 5)


def _read_build_file(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read(_LARGEST)


def _modified_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def measure_folder(folder: str) -> tuple[int | None, int | None]:
    """Return how many files are in a folder and below it, and their bytes, of MOST_FILES at the
    most; None for a folder that there is not.
    """
    if not os.path.isdir(folder):
        return None, None
    count = size = 0
    for entry in islice(_walk_entries(folder), MOST_FILES):
        with contextlib.suppress(OSError):  # one that is gone by now
            size += entry.stat(follow_symlinks=False).st_size
            count += 1
    return count, size


def _walk_entries(folder: str) -> Iterator[os.DirEntry[str]]:
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        yield entry
        except OSError:
            continue
