"""What a stack tells of its process: a rank's number, its world and where they meet, as the locals
of its frames say it; and the row of the start-up's table that its call corresponds to. Pure.

A script that was not watched has reported no checkpoint. So it is found from the call that hangs,
by the table of known calls, and from the frames around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from ..base.checkpoints import STARTUP_BY_NAME
from ..base.lazy_dataclass import dataclass
from ..base.library_functions import parse_text
from ..base.process_facts import Frame, Look
from ..base.verdict_facts import CheckpointPlace
from ..diagnosis.process.frames import frame_owner, serves_multiprocessing, unqualified_name
from ..rank.watched.known_calls import KNOWN_CALLS, KnownCall

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
    ("jax/_src/distributed.py", "initialize", "process_id", ""),
)
# (file, function) of what serves another process, and not of what asks one: both have frames of the
# same libraries (the loops of multiprocessing, concurrent.futures, torch's DataLoader and loky;
# execnet's, in which pytest-xdist runs tests).
_WORKERS = (
    (re.compile(r"torch/utils/data/_utils/worker\.py$"), "_worker_loop"),
    (re.compile(r"multiprocessing/pool\.py$"), "worker"),
    (re.compile(r"multiprocessing/managers\.py$"), "_run_server|serve_forever"),
    (re.compile(r"concurrent/futures/process\.py$|/process_executor\.py$"), "_process_worker"),
    (re.compile(r"/execnet/gateway_base\.py$"), "executetask|serve"),
)
_MASTERS = ("hostname", "master_addr")
_WORLDS = ("world_size", "nprocs", "num_processes")


@dataclass(frozen=True)
class RankLocals:
    """What the stack of one process tells of it."""

    number: int | None = None  # in the whole job
    local: int | None = None  # on its node
    world: int | None = None
    master: str = ""  # the host where the ranks meet
    worker: bool = False  # it serves another process

    @property
    def any_number(self) -> int | None:
        """Its number in the whole job, else that on its node."""
        return self.number if self.number is not None else self.local


def read_rank_locals(one: Look) -> RankLocals:
    """Return what the main thread's frames tell of a process."""
    frames = [frame for frame in (one.main.frames if one.main else ()) if not frame.native]
    if serves_multiprocessing(frames) or any(map(_serves_another, frames)):
        return RankLocals(worker=True)
    number = local = world = None
    master = ""
    for frame in frames:  # innermost first: who meets knows better than who started it
        here = _read_frame_locals(frame)
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


def _serves_another(frame: Frame) -> bool:
    name = unqualified_name(frame.name)
    return any(file.search(frame.file) and re.fullmatch(what, name) for file, what in _WORKERS)


def _read_frame_locals(frame: Frame) -> RankLocals:
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


_LIGHTNING = r"(?:pytorch_lightning|lightning/pytorch)"
_DATA = rf"{_LIGHTNING}/trainer/connectors/data_connector\.py"
# (end of the file, function, checkpoint, phase): what is no call of a user's, and is on the stack.
_FRAMES = (
    (r"wandb/sdk/wandb_init\.py", "init", "wandb_logger", None),
    (rf"{_LIGHTNING}/loggers/wandb\.py", "experiment|__init__", "wandb_logger", None),
    (_DATA, "prepare_data", "training", "prepare_data"),
    (rf"{_LIGHTNING}/trainer/call\.py", "_call_setup_hook", "training", "setup"),
    (r"transformers/trainer\.py", "_inner_training_loop", "training", None),
    (r"transformers/tokenization_\w+\.py", "from_pretrained", "tokenizer", None),
    (r"accelerate/accelerator\.py", "prepare_model", "training", "wrap"),
    (r"torch/utils/data/dataloader\.py", "__iter__", "training", None),
)
# (what the call is like, checkpoint, phase): the names under which a stack shows it.
_CALLS = (
    (r"wandb\.(?:login|setup)|\w*lightning\w*\.loggers\.WandbLogger", "wandb_logger", None),
    (r"transformers\.\w*(?:Tokenizer|Processor)\w*\.from_pretrained", "tokenizer", None),
    (r"transformers\.\w*(?:Model|For[A-Z]|LMHead)\w*\.from_pretrained", "model", None),
    (r"torch\.cuda\.(?:_lazy_init|is_available|device_count|set_device)", "accelerator", None),
    (r"torch\.distributed\.new_group", "training", "process_group"),
    (r"torch\.distributed\.fsdp\.\w+", "training", "wrap"),
    (r"torch\.utils\.data\.DataLoader\.\w+", "training", None),
)
_ONLY_WATCHED = "first_"  # phases: who was not watched may be in any later batch


def place_of_call(call: str | None, frames: Sequence[Frame] = ()) -> CheckpointPlace | None:
    """Return the checkpoint whose step makes this call, else whose step stands around it
    (`frames`, innermost first), with its phase as far as either tells; None where neither does.
    """
    by_call = _place_of_known_call(call)
    by_frames = next(
        (place for frame in frames if (place := _place_of_frame(frame)) is not None), None
    )
    if by_call is None or (by_call.phase is None and _is_same(by_call, by_frames)):
        return by_frames
    return by_call


def _is_same(one: CheckpointPlace, other: CheckpointPlace | None) -> bool:
    return other is not None and one.number == other.number


def _place_of_known_call(call: str | None) -> CheckpointPlace | None:
    if call is None:
        return None
    known = next((row for row in _list_checkpoint_calls() if row.call == call), None)
    if known is not None:
        return _of_row(known)
    found = (_make_place(name, phase) for like, name, phase in _CALLS if re.fullmatch(like, call))
    return next(found, None)


def _place_of_frame(frame: Frame) -> CheckpointPlace | None:
    own = unqualified_name(frame.name)
    for file, function, name, phase in _FRAMES:
        if re.search(rf"(?:^|/){file}$", frame.file) and re.fullmatch(function, own):
            return _make_place(name, phase)
    row = next((row for file, row in _places().get(own, ()) if file.search(frame.file)), None)
    return None if row is None else _of_row(row)


def _list_checkpoint_calls() -> Iterator[KnownCall]:
    return (row for row in KNOWN_CALLS if row.checkpoint is not None)


@cache
def _places() -> dict[str, list[tuple[re.Pattern[str], KnownCall]]]:
    """Return the rows by the name of their function, each with the end of its file."""
    found: dict[str, list[tuple[re.Pattern[str], KnownCall]]] = {}
    for row in _list_checkpoint_calls():
        path = row.module.replace(".", "/")
        file = re.compile(rf"(?:^|/){path}(?:/__init__)?\.py$")
        found.setdefault(unqualified_name(row.attribute), []).append((file, row))
    return found


def _of_row(row: KnownCall) -> CheckpointPlace:
    assert row.checkpoint is not None
    is_told = row.phase is not None and not row.phase.startswith(_ONLY_WATCHED)
    return _make_place(row.checkpoint, row.phase if is_told else None)


def _make_place(name: str, phase: str | None) -> CheckpointPlace:
    row = STARTUP_BY_NAME[name]
    return CheckpointPlace(row.number, row.name, row.title, phase)
