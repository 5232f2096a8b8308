"""Whether a thread that burns CPU waits: for a GPU, for CUDA spins as often as it sleeps, or for
other ranks in MPI, which polls. Told by native frames; a wait for a GPU by the innermost line of
Python as well. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from ...base.library_functions import Role, has_role
from ...base.process_facts import Frame, Look
from .frames import format_innermost_frame, frame_owner

_GPU_CALL = re.compile(r"(?:cuda|hip|hsa)[A-Z]\w*|cu[A-Z]\w*|cudart::|hsa_\w+|rocr::")
# Those of them that wait until the GPU has done something; kernels are handed out at work, too.
_GPU_WAIT = re.compile(
    r"(?:cuda|cu|hip)\w*(?:Synchronize|Memcpy)\w*|hsa_signal_wait\w*|rocr::\w*::?\w*Wait\w*"
)
# Calls of MPI that return once others have done their part (MPI 4.1, chapters 3, 6); who tests or
# probes comes back and may compute in between.
_MPI_WAIT = re.compile(
    r"P?MPI_(?:Wait\w*|S?Send\w*|M?Recv|Sendrecv\w*|M?Probe|Barrier|(?:All)?[Gg]ather[vw]?"
    r"|Scatterv?|Bcast|(?:All)?[Rr]educe\w*|Alltoall[vw]?|Ex?scan|Comm_(?:dup|split|create)\w*"
    r"|Win_(?:fence|lock\w*|wait)|Finalize|Init\w*)"
)
# What gets a value from a GPU, and what may stand in the same line and takes no time.
_ASKS = frozenset(["item", "tolist", "cpu", "synchronize"])
_BESIDE = frozenset(["append", "detach", "float", "int", "format", "print"])
_GPU_SYSCALLS = frozenset(["", "ioctl", "sched_yield"])


def find_gpu_call(frames: Sequence[Frame]) -> str:
    """Return the function of CUDA or ROCm that a thread is in by its native frames, "" for none."""
    names = (frame.name for frame in takewhile(lambda frame: frame.native, frames))
    return next((name for name in names if _GPU_CALL.match(name)), "")


def find_mpi_call(frames: Sequence[Frame]) -> str:
    """Return the call of MPI in which a thread waits by its native frames, as mpi4py and torch name
    it ("gather"), "" for none.
    """
    names = (frame.name for frame in takewhile(lambda frame: frame.native, frames))
    found = next((name for name in names if _MPI_WAIT.fullmatch(name)), "")
    return found.partition("MPI_")[2].lower()


def find_gpu_line(frames: Sequence[Frame], look: Look) -> str:
    """Return by which line a thread of `look`, a process that uses a GPU and is in no system call,
    asks for what the GPU computes, "" for none. Where there are native frames, they tell.
    """
    inner = next(iter(frames), None)
    call = look.kernel[0].syscall if look.kernel else None
    if inner is None or inner.native or not look.gpus:
        return ""
    if call is not None and call.name not in _GPU_SYSCALLS:
        return ""
    names = {name.rpartition(".")[2] for name in inner.calls}
    asks = names & _ASKS if frame_owner(inner, "") == "user" and names <= _ASKS | _BESIDE else set()
    if has_role(inner.file, inner.name, Role.AWAITS_GPU):
        return format_innermost_frame(frames)
    return f"{'/'.join(sorted(asks))}, {format_innermost_frame(frames)}" if asks else ""


def waits_by_spinning(looks: Sequence[Look]) -> bool:
    """Return whether a process waits for a GPU, or in MPI for others, in one place at all `looks`,
    oldest first: by the native frames of the last one, if it has any. Who is at different lines
    computes.
    """
    seen = [(one, one.main.frames) for one in looks if one.main is not None and one.main.frames]
    if len(seen) < 2 or len({list_python_frames(frames) for _, frames in seen}) > 1:
        return False
    last, frames = seen[-1]
    native = [frame.name for frame in takewhile(lambda frame: frame.native, frames)]
    if any(_GPU_WAIT.fullmatch(name) or _MPI_WAIT.fullmatch(name) for name in native):
        return True
    return bool(find_gpu_line(frames, last))


def list_python_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return frames without native ones."""
    return tuple(one for one in frames if not one.native)
