"""Ranks that all wait for their GPUs, of which nothing recorded says who has not come. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.identity import RankId
from .case import Case
from .process.spin_waits import find_gpu_call, find_gpu_line, list_python_frames
from .single_ranks import is_gone


def describe_alike_gpu_waits(case: Case, candidates: Sequence[RankId]) -> str:
    """Return in words why nobody can be named where all ranks, several of them, wait for their GPUs
    in one place, by the frames of some of them; "" where a log of collectives, or what a GPU runs,
    may tell them apart.
    """
    living = [one for one in case.ranks if not (one.finished or is_gone(one))]
    if len(living) < 2 or {one.rank for one in living} != {*candidates} or case.absent:
        return ""
    if any(one.collectives or one.gpu_kernels for one in living):
        return ""
    views = [case.rank_waits[one.rank].view for one in living]
    seen = [view for view in views if view is not None]
    told = [v for v in seen if find_gpu_call(v.frames) or find_gpu_line(v.frames, v.look)]
    places = {list_python_frames(view.frames) for view in seen}
    if not told or len(seen) < len(living) or len(places) > 1:
        return ""
    return (
        f"NCCL's calls return before they are done: all {len(living)} ranks wait for their GPUs in "
        "one place, and nobody can be named by that. Who has not come is told by NCCL's RAS "
        "service (2.24 and later; NCCL_RAS_ENABLE=1), torch's flight recorder "
        "(TORCH_FR_BUFFER_SIZE=2000), and the log of collectives of a job below `hangbisect run`"
    )
