"""A rank's number, its world and where they meet, as the locals of its frames say it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..base.facts import Frame, Look
from ..base.lazy_dataclass import dataclass
from ..base.library_functions import parse_text
from ..diagnosis.frames import frame_owner, unqualified_name

_C10D = "torch/distributed/distributed_c10d.py"
# (end of the file, function, its local for the whole job's number, for the node's). The number in
# the whole job stands where ranks meet; what starts processes counts those of its own node.
_TELLING = (
    ("torch/distributed/rendezvous.py", r"\w*rendezvous\w*|_create_c10d_store", "rank", ""),
    (_C10D, "init_process_group|_store_based_barrier", "rank", ""),
    (_C10D, "_new_process_group_helper", "group_rank", ""),
    ("fabric/utilities/distributed.py", "_init_dist_connection", "global_rank", ""),
    ("deepspeed/comm/comm.py", "init_distributed", "rank", ""),
    ("torch/multiprocessing/spawn.py", "_wrap", "", "i"),
    ("torch/distributed/elastic/multiprocessing/api.py", "_wrap", "", "local_rank"),
    ("strategies/launchers/multiprocessing.py", "_wrapping_function", "", "process_idx"),
    ("accelerate/utils/launch.py", "__call__", "", "index"),
)
_WORKERS = re.compile(
    r"torch/utils/data/_utils/worker\.py$|multiprocessing/(?:pool|resource_tracker|forkserver"
    r"|managers)\.py$|concurrent/futures/process\.py$|joblib/"
)
_MASTERS = ("hostname", "master_addr")
_WORLDS = ("world_size", "nprocs")


@dataclass(frozen=True)
class RankLocals:
    """What the stack of one process tells of it."""

    number: int | None = None  # in the whole job
    local: int | None = None  # on its node
    world: int | None = None
    master: str = ""  # the host where the ranks meet
    worker: bool = False  # it serves another process


def read_rank_locals(one: Look) -> RankLocals:
    """Return what the main thread's frames tell of a process."""
    frames = [frame for frame in (one.main.frames if one.main else ()) if not frame.native]
    if any(_WORKERS.search(frame.file) for frame in frames):
        return RankLocals(worker=True)
    number = local = world = None
    master = ""
    for frame in frames:  # innermost first: who meets knows better than who started it
        here = _of_frame(frame)
        number = here.number if number is None else number
        local = here.local if local is None else local
        world = here.world if world is None else world
        master = master or here.master
    if number is None:
        number = next((n for f in reversed(frames) if (n := _own(f, "rank")) is not None), None)
    if world is None:
        sizes = (n for f in reversed(frames) for w in _WORLDS if (n := _own(f, w)) is not None)
        world = next(sizes, None)
    return RankLocals(number, local, world, master)


def _of_frame(frame: Frame) -> RankLocals:
    values = dict(frame.locals)
    name = unqualified_name(frame.name)
    for file, function, number, local in _TELLING:
        if frame.file.endswith(file) and re.fullmatch(function, name):
            return RankLocals(
                _parse_local(values, number),
                _parse_local(values, local),
                next((n for w in _WORLDS if (n := _parse_local(values, w))), None),
                next((text for m in _MASTERS if (text := parse_text(values.get(m, "")))), ""),
            )
    return RankLocals()


def _own(frame: Frame, name: str) -> int | None:
    """Return a number among the locals of the script's own function."""
    number = _parse_local(dict(frame.locals), name)
    return number if number is not None and frame_owner(frame, "") == "user" else None


def _parse_local(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
