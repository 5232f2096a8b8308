"""A log of the collectives that this rank enters, in memory that the monitor reads.

Where every rank waits in a collective, stacks do not show which is to blame: an extra barrier on
one rank meets a later one of another, and what hangs in the end is elsewhere. The order of calls
shows it.

Construction of DDP and FSDP, and backward, stand for the collectives that C++ makes and Python
never sees. Not seen at all are those that a compiled graph makes, and torch.distributed's
functional collectives; torch's own recorder has these (collective_records.py).
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..base import events
from ..base.error_guard import ignore_our_errors, is_of_the_job, raise_if_of_the_job
from ..base.place import FOLDER_VARIABLE
from .after_import import after_import, wait_no_more
from .call_sites import CallSites
from .collective_records import (
    ENTERED,
    HANDED_OUT,
    LEFT,
    RAISED,
    RECORD,
    RECORDS,
    STATE_AT,
    GroupStreams,
    RecorderAnswers,
    RecordRing,
    StepPace,
    Streams,
)
from .function_patching import (
    C10D,
    COLLECTIVES,
    GROUP_LIFETIME,
    POINT_TO_POINT,
    TO_PEER_HANDED_OUT,
    Function,
    Maker,
    Undo,
    add_before_and_after,
    find_inner_functions,
    hide_frames,
    list_positional_parameters,
    replace_code,
    replace_torch_function,
)
from .tracebacks import without_our_frame

if TYPE_CHECKING:
    from .link import Link


# After the start the log stays while it costs less than MOST_COST of the time; what an operation
# costs is measured by benchmarks/collective_log.py. That is looked at after CHECKED_AFTER training
# steps, and again after each CHECKED_EVERY.
COST, MOST_COST = 10e-6, 0.005  # seconds; share
CHECKED_AFTER, CHECKED_EVERY = 20, 1000
_MOST_SHAPES = 2048  # where every batch has another length there is no end to them


class TensorShapes:
    """Shapes by number; numbers are given by `number_of(text)`."""

    def __init__(self, number_of: Callable[[str], int]) -> None:
        """`torch` is set later, once it is there."""
        self.torch: Any = None
        self._number_of = number_of
        self._plain: frozenset[type] = frozenset()
        self._known: dict[Any, int] = {}

    def of(self, tensor: Any) -> int:
        """Return the number of a tensor's type and shape, 0 for anything that is no plain tensor:
        others may do whatever they like when they are asked.
        """
        if type(tensor) not in self._plain:
            return self._new_type(tensor)
        found = self._known.get((tensor.dtype, tensor.shape))
        return self._new_shape(tensor) if found is None else found

    def _new_type(self, tensor: Any) -> int:
        if self._plain or self.torch is None:
            return 0
        self._plain = frozenset([self.torch.Tensor, self.torch.nn.Parameter])
        return self.of(tensor)

    def _new_shape(self, tensor: Any) -> int:
        if len(self._known) >= _MOST_SHAPES:
            return 0
        text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        self._known[tensor.dtype, tensor.shape] = number = self._number_of(text)
        return number


_TENSORS = ("tensor", "input_tensor", "input", "output")  # parameters, the most telling first


def begin_collective_log(link: Link, rank: int) -> CollectiveLog | None:
    """Log this rank's collectives for the monitor that `link` is open to; None without one, or if
    there is no memory for it.
    """
    if link.alone:
        return None
    try:
        log = CollectiveLog()
    except OSError as error:
        raise_if_of_the_job(error)
        return None
    answers = RecorderAnswers(rank)
    log.grouped = answers.begin
    before = link.connected

    def connected(folder: str) -> None:
        before(folder)
        answers.connect(folder)

    link.connected = connected
    answers.connect(os.environ.get(FOLDER_VARIABLE, ""))
    link.tell(events.RingOpened(fd=log.ring.fd))
    log.install()
    return log


class CollectiveLog:
    """What is logged, and where."""

    def __init__(self) -> None:
        """Raises OSError where there is no memory to be had."""
        self.ring = RecordRing()
        self.grouped: Callable[[], None] = lambda: None  # called when there is a process group
        self.is_on = True
        self._groups = GroupStreams(self.ring)
        self._sites = CallSites(self.ring.text)
        self._shapes = TensorShapes(self.ring.text)
        self._inside: set[int] = set()  # ids of code: what it calls is a part of it
        self._undo: list[Undo] = []
        self._waiting: list[Callable[[ModuleType], None]] = []  # for modules
        os.register_at_fork(after_in_child=self.stop)

    def stop(self) -> None:
        """Log no more: a forked child has the same memory, and is no rank."""
        self.is_on = False

    def go_on_with_groups(self) -> None:
        """Wait for no more modules of torch. Where there is no process group there is nothing to be
        logged: put torch's own functions back.
        """
        wait_no_more(self._waiting)
        if not self._groups.has_any():
            self._put_back()
            self.ring.clear()

    def count_steps(
        self, pace: StepPace | None = None, clock: Callable[[], float] = time.monotonic
    ) -> Callable[[], None]:
        """Return what is to be called at the end of each training step: it writes the pulse, and
        now and then sees whether the log costs too much of the steps.

        The `pace` of the first steps is a pulse at once: the job may hang before another one.
        """
        note_step = self.ring.note_step
        (last, longest), count = pace or (0.0, 0.0), 0
        if pace is not None and self.is_on:
            note_step(last, longest, 0)
        checked, operations = 0.0, 0

        def step() -> None:
            nonlocal last, longest, count, checked, operations
            if not self.is_on:  # a forked child has the same memory
                return
            now = clock()
            if last and now - last > longest:
                longest = now - last
            last, count = now, count + 1
            note_step(now, longest, count)
            if count in (1, CHECKED_AFTER) or not count % CHECKED_EVERY:
                noted = self.ring.count_operations()
                if checked and (noted - operations) * COST > MOST_COST * (now - checked):
                    self._put_back()
                    self.ring.clear()
                checked, operations = now, noted

        return step

    def uninstall(self) -> None:
        """Log no more, and put torch's own functions back: a call costs what it did without us."""
        self.is_on = False
        self.ring.clear()
        wait_no_more(self._waiting)
        self._put_back()

    def _put_back(self) -> None:
        while self._undo:
            with ignore_our_errors():
                self._undo.pop()()

    def install(self) -> None:
        """Log from when torch's modules are imported on."""
        for module, then in (
            (C10D, self._log_functions),
            ("torch.nn.parallel.distributed", self._log_ddp),
            ("torch.distributed.fsdp.fully_sharded_data_parallel", self._log_fsdp),
            ("torch.distributed.fsdp._fully_shard._fully_shard", self._log_fully_shard),
            ("torch.autograd", self._log_backward),
        ):
            waiting = functools.partial(_try_to_log, then)
            self._waiting.append(waiting)
            after_import(module, waiting)

    # ---- what is logged ------------------------------------------------------------------------

    def _log_functions(self, c10d: ModuleType) -> None:
        self._groups.c10d = c10d
        self._shapes.torch = getattr(c10d, "torch", None)
        self._inside |= {id(f.__code__) for f in find_inner_functions(c10d)}
        for names, streams in (
            (COLLECTIVES, self._groups.collective),
            ((*POINT_TO_POINT, *TO_PEER_HANDED_OUT), self._groups.to_peers),
        ):
            for name in [n for n in names if hasattr(c10d, n)]:
                self._undo.append(replace_torch_function(c10d, name, self._maker(name, streams)))
        for name in GROUP_LIFETIME:
            self._undo.append(replace_torch_function(c10d, name, self._maker(name)))

    def _log_ddp(self, module: Any) -> None:
        made = self._maker("ddp", self._groups.collective, "process_group")
        self._undo.append(replace_code(module.DistributedDataParallel.__init__, made))

    def _log_fsdp(self, module: Any) -> None:
        made = self._maker("fsdp", self._groups.collective, "process_group")
        self._undo.append(replace_code(module.FullyShardedDataParallel.__init__, made))

    def _log_fully_shard(self, module: Any) -> None:
        made = self._maker("fsdp", self._groups.collective)
        self._undo.append(replace_code(module.fully_shard, made))

    def _log_backward(self, module: Any) -> None:
        self._undo.append(replace_code(module.backward, self._maker("backward")))

    def _maker(self, kind: str, streams: Streams | None = None, group_name: str = "group") -> Maker:
        def made(function: Function, depth: int) -> Function:
            names = list_positional_parameters(function)
            if kind == "init_process_group":
                function = add_before_and_after(function, after=self._has_group)
            elif kind == "destroy_process_group":
                function = add_before_and_after(function, before=self._forget)
            return self._logged(function, names, kind, streams, group_name, depth)

        return made

    def _text_of(self, value: object) -> int:
        return self.ring.text(value) if isinstance(value, str) else 0

    def _has_group(self) -> None:
        with ignore_our_errors():
            self._groups.forget()
            self.grouped()

    def _forget(self, group: Any = None, **_: Any) -> None:
        with ignore_our_errors():
            self._groups.forget(group)

    # ---- the way of every call -----------------------------------------------------------------

    def _logged(
        self,
        function: Function,
        names: tuple[str, ...],
        kind: str,
        streams: Streams | None,
        group_name: str,
        depth: int,
    ) -> Function:
        """Return `function` with a record of each call; its caller is `depth` frames up.

        This is on the way of every collective: what can be is looked up beforehand.
        """
        log, memory, pack, size = self, self.ring.memory, RECORD.pack_into, RECORD.size
        monotonic, getframe, inside = time.monotonic, sys._getframe, self._inside
        site_of, groups = self._sites.of, self._groups
        shape_of: Callable[[Any], int] = self._shapes.of
        group_at = names.index(group_name) if group_name in names else len(names)
        tensor_name = next((n for n in _TENSORS if n in names), "")
        if kind == "init_process_group" and "init_method" in names:
            tensor_name, shape_of = "init_method", self._text_of  # "file:///...": where they meet
        tensor_at = names.index(tensor_name) if tensor_name else len(names)
        kind_text = self.ring.text(kind)
        may_hand_out = "async_op" in names or kind in TO_PEER_HANDED_OUT
        may_queue = not (kind in _WAITED_FOR or "object" in kind)
        peer_of = _find_peer_parameters(names) if streams is not None else ()

        def logged(*args: Any, **kwargs: Any) -> Any:
            at, state = 0, LEFT
            try:
                caller = getframe(depth)
                if log.is_on and id(caller.f_code) not in inside:
                    stream = groups.outside
                    if streams is not None:
                        group = args[group_at] if len(args) > group_at else kwargs.get(group_name)
                        stream = streams.get(id(group)) or groups.meet(group, streams)
                    next_number, base, name, queued_on = stream
                    shape = peer = 0
                    tensor = None
                    if tensor_name:
                        given = len(args) > tensor_at
                        tensor = args[tensor_at] if given else kwargs.get(tensor_name)
                        shape = shape_of(tensor)
                    if peer_of:
                        peer = 1 + groups.find_peer(peer_of, group, args, kwargs)
                    if queued_on and may_queue:
                        state = HANDED_OUT if _is_queued(tensor, queued_on) else LEFT
                    site, number = site_of(caller), next_number()
                    at = base + number % RECORDS * size
                    now = monotonic()
                    pack(
                        memory, at, number, name, kind_text, site, shape, ENTERED, now, peer, number
                    )
            except BaseException as error:  # whatever it is: the job's call is what counts
                if not isinstance(error, Exception) or is_of_the_job(error):
                    if at:  # it is not made: nothing is entered
                        memory[at + STATE_AT] = LEFT
                    raise
                at = 0
            try:
                result = function(*args, **kwargs)
                if may_hand_out and result is not None:
                    state = HANDED_OUT
                return result
            except BaseException as error:
                state = RAISED
                without_our_frame(error)
                raise
            finally:
                if at:
                    memory[at + STATE_AT] = state

        logged._torchdynamo_disable = True  # type: ignore[attr-defined]  # as torch.compiler does
        return hide_frames(logged)


# What returns when it is over, whatever the backend: the caller needs what it brings, or that all
# are there.
_WAITED_FOR = frozenset(["barrier", "monitored_barrier", "ddp", "fsdp", *GROUP_LIFETIME])
_WAITED_FOR |= {"new_group", "split_group", "shrink_group"}


def _is_queued(tensor: Any, queued_on: frozenset[str]) -> bool:
    """Return whether an operation on a tensor, or on a list of them, goes into a queue."""
    one = tensor[0] if isinstance(tensor, list) and tensor else tensor
    device = getattr(one, "device", None)
    return getattr(device, "type", None) in queued_on


def _find_peer_parameters(names: tuple[str, ...]) -> tuple[tuple[str, int, bool], ...]:
    """Return the parameters that may have the other rank of a send or receive, or the root of a
    collective: the name, its place, and whether it is a number within the group.
    """
    return tuple(
        (name, names.index(name), name.startswith("group_"))
        for name in ("dst", "src", "group_dst", "group_src")
        if name in names
    )


def _try_to_log(then: Callable[[Any], None], module: ModuleType) -> None:
    # Another version of torch may have it differently: then that part is not logged.
    with ignore_our_errors():
        then(module)
