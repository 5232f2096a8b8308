"""Libraries that were put in the place of functions that a program calls (LD_PRELOAD).

The loader lets a library that it loads before all others answer for functions of the C library, of
CUDA, of NCCL (man 8 ld.so): a limit on GPU memory, an allocator, a profiler, a proxy. Most hand the
call on, and are on the stack of whatever hangs there; so a library is suspected only where nothing
below it is what it was to hand the call on to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile

from ...base.process_facts import Frame
from .known_cause import Found, KnownCause, Scene, need
from .signs import (
    format_native_function,
    innermost_native_frames,
    is_called_by_ctypes,
    is_of_libc,
    library_of,
)

# Switches of libraries that are often preloaded, by how their file's name begins.
_SWITCHES = {
    "libvgpu": "CUDA_DISABLE_CONTROL=true: HAMi-core's own switch, which hands every call on",
}
# What the names of one function differ in: the C library's inner ones, and wrappers of sanitizers.
_DECORATION = re.compile(r"^(?:_+interceptor_|_*GI_+|_*libc_+|_+)|(?:64|_nocancel)?(?:@.*)?$")
_TRUST_IN_A_FOLDER = 0.6  # nobody says that it was preloaded
# Functions that others' libraries replace, of those that jobs hang in.
_REPLACED = re.compile(
    r"(?:cu|hip|nccl|rccl)[A-Z]\w*|connect|accept4?|open(?:at)?(?:64)?|read|write|recv\w*|send\w*"
    r"|poll|select|ioctl|mmap|malloc|calloc|realloc|free|dlopen|dlsym|fork|execve|flock|fcntl"
    r"|pthread_\w+|sem_\w+"
)
# Where libraries lie that nobody is surprised by, and what replaces nothing wherever it lies.
_USUAL = re.compile(
    r"^/(?:usr|lib|lib32|lib64|opt|nix|gnu)/|/(?:site|dist)-packages/|/lib/python[\d.]+/"
    r"|/(?:\w*conda\w*|envs)/|/(?:libcuda|libcudart|libnccl|librccl|libamdhip|libc[.-]|libpthread"
    r"|ld-)[^/]*$|/(?:libpython|python)[^/]*$|\.(?:cpython|abi3)[^/]*\.so$"
)


# ---- signs ---------------------------------------------------------------------------------------


def in_a_preloaded_library(scene: Scene) -> Found | None:
    """The innermost native frames of a rank are those of a library that LD_PRELOAD or
    /etc/ld.so.preload names, and it has not handed the call on.
    """
    look = scene.view.look if scene.view is not None else None
    names = {_name_library(path) for path in look.preloaded} if look is not None else set()
    frame = _find_standing_frame(scene.frames, lambda path: _name_library(path) in names)
    return None if frame is None else _describe_frame(frame, "which is preloaded")


def _in_a_foreign_library(scene: Scene) -> Found | None:
    """The innermost native frames of a rank are those of a preloaded library, or of one from an
    unusual folder, in a function of libc's or CUDA's.
    """
    found = in_a_preloaded_library(scene)
    if found is not None or is_called_by_ctypes(scene.frames):
        return found
    frame = _find_standing_frame(scene.frames, lambda path: _USUAL.search(path) is None)
    if frame is None or not _REPLACED.fullmatch(_undecorated(frame)):
        return None
    return replace(_describe_frame(frame, "from an unusual folder"), trust=_TRUST_IN_A_FOLDER)


def _describe_frame(frame: Frame, what: str) -> Found:
    path = library_of(frame)
    name = path.rpartition("/")[2]
    switch = next((words for start, words in _SWITCHES.items() if name.startswith(start)), "")
    values = {
        "call": format_native_function(frame),
        "path": path,
        "name": name,
        "first": switch or f"the same command with LD_PRELOAD unset, or without {name} in it",
    }
    return Found(f"native frame {format_native_function(frame)}, {what}", values)


def _find_standing_frame(
    frames: tuple[Frame, ...], is_meant: Callable[[str], bool]
) -> Frame | None:
    """Return the outermost of the innermost frames that are in a library that `is_meant` (its
    path), those of the C library that it called left out; None where another library is inside, or
    the C library's function that it stands in the place of: then the call was handed on.
    """
    native = innermost_native_frames(frames)
    called = list(takewhile(is_of_libc, native))
    own = list(takewhile(lambda frame: is_meant(library_of(frame)), native[len(called) :]))
    handed_on = {_undecorated(frame) for frame in called} & {_undecorated(frame) for frame in own}
    return own[-1] if own and not handed_on else None


def _name_library(path: str) -> str:
    """Return a library's name without its version: what is preloaded may be a link to that."""
    return path.rpartition("/")[2].partition(".so")[0]


def _undecorated(frame: Frame) -> str:
    return _DECORATION.sub("", frame.name.partition("(")[0])


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="preloaded-library",
        title="a library that was put in the place of another one's function does not come back",
        signs=(need(_in_a_foreign_library, 0.85),),
        why="The rank stands in {call}: {path} answers for that function in the place of the "
        "library that it belongs to, and what waits there is its own code.",
        avoid=(
            "{first}",
            "look into /etc/ld.so.preload too: a container's device plugin may have put it there",
            "a newer version of {name}, or a look at what it waits for: its lock files, its other "
            "processes",
        ),
        references=(
            "Project-HAMi/HAMi#2641",
            "Project-HAMi/HAMi-core#261",
            "https://man7.org/linux/man-pages/man8/ld.so.8.html",
        ),
    ),
)
