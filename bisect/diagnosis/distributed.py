"""Whether a process waits for its peers inside torch.distributed, and in which way."""

from __future__ import annotations

import re
from typing import Literal

from ..facts import Frame
from .entries import entries
from .frames import short
from .syscalls import MEETS
from .view import Seen

# construction: a process group (or its store) is being made, for which all ranks must come.
# collective: a group exists, and its members meet. store: a key that somebody is to set.
GroupWait = Literal["construction", "collective", "store"]

_C10D = "torch/distributed/distributed_c10d.py"
_CONSTRUCTS = re.compile(
    r"init_process_group|_new_process_group_helper|_?new_group\w*|split_group|_store_based_barrier"
    r"|_new_subgroups\w*|new_subgroups\w*"
)
_HARMLESS = re.compile(r"is_\w+|get_\w+|_get_\w+|_rank_not_in_group|_check_\w+")
_STORE_FILES = ("torch/distributed/elastic/utils/store.py",)
_RENDEZVOUS = "torch/distributed/rendezvous.py"
# Reached from Python without a frame of torch.distributed: what follows is C++.
_MEETING_FRAMES = (
    (re.compile(r"torch/nn/parallel/distributed\.py$"), re.compile(r"\w+")),
    (re.compile(r"torch/distributed/utils\.py$"), re.compile(r"_(?:sync|verify)_\w+")),
    (re.compile(r"torch/distributed/fsdp/.*\.py$"), re.compile(r"\w+")),
    (re.compile(r"(?:lightning_)?fabric/utilities/distributed\.py$"), re.compile(r"__exit__")),
    (re.compile(r"torch/autograd/graph\.py$"), re.compile(r"_engine_run_backward")),
    (re.compile(r"torch/distributed/.*collectives?.*\.py$"), re.compile(r"\w+")),
)
_NATIVE_STORE = re.compile(r"c10d::(?:\w*Store|detail::)|\bTCPStore\b")
_NATIVE_MEETING = re.compile(r"\bgloo::|\bnccl|c10d::(?:ProcessGroup|Work|Reducer|Backend)|\bMPI_")


def group_wait(view: Seen) -> GroupWait | None:
    """Return in which way the process waits for its peers, None if it does not.

    Judged by the innermost Python frame, and by native frames where there are any: code of the
    job that is called from inside a collective does not wait for peers itself.
    """
    if view.state in ("D", "T", "t", "Z"):
        return None
    python = next((f for f in view.frames if not f.native), None)
    if python is None:
        return None
    native = _by_native(view)
    by_frame = _by_frame(python, view)
    if by_frame == "construction" or native is None:
        return by_frame
    return native


def _by_frame(frame: Frame, view: Seen) -> GroupWait | None:
    name = short(frame.name)
    if frame.file.endswith(_RENDEZVOUS):
        return "construction"
    if frame.file.endswith(_STORE_FILES):
        return "store"
    if frame.file.endswith(_C10D):
        if _CONSTRUCTS.fullmatch(name):
            return "construction"
        return None if _HARMLESS.fullmatch(name) else "collective"
    if frame.file.endswith("torch/distributed/c10d_logger.py"):
        inner = next((e for f in view.frames for e in entries(f) if e.collective), None)
        return "collective" if inner else None
    if view.running or view.call_name not in MEETS:
        return None  # it computes, or is blocked in something else
    for file, function in _MEETING_FRAMES:
        if file.search(frame.file) and function.fullmatch(name):
            return "collective"
    return None


def _by_native(view: Seen) -> GroupWait | None:
    """Return what the native frames inside the innermost Python frame tell."""
    for frame in view.frames:
        if not frame.native:
            return None
        if _NATIVE_STORE.search(frame.name):
            return "store"
        if _NATIVE_MEETING.search(frame.name):
            return "collective"
    return None


def group_call(view: Seen) -> str:
    """Return the short name of the distributed call on the stack ("all_reduce"), or ""."""
    for frame in view.frames:
        found = next((e for e in entries(frame) if e.component == "strategy"), None)
        if found is not None:
            return found.named(frame).rpartition(".")[2]
    return ""
