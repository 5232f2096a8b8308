"""The log of collectives, over functions that are made as torch makes its own."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

import pytest
from hangbisect.base.rank_facts import Collective
from hangbisect.evidence.ring_reader import Pulse, parse_ring, read_pulse, read_ring
from hangbisect.rank.collective_log import CHECKED_AFTER, CollectiveLog
from hangbisect.rank.collective_records import RECORD, RECORDS, RecordRing, StepPace

LOGGERS = """
import functools
def logs(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        return func(*args, **kwargs)
    return wrapper
"""
# Shaped as torch.distributed.distributed_c10d is.
C10D = """
class GroupMember:
    WORLD = None
    NON_GROUP_MEMBER = -100
class Group:
    def __init__(self, name, ranks): self.group_name, self.ranks = name, ranks
    group_desc = "undefined"
def get_process_group_ranks(group): return group.ranks
def get_global_rank(group, number): return group.ranks[number]
def get_backend_config(group): return getattr(group, "backends", "cpu:gloo,cuda:gloo")
@logs
def init_process_group(backend=None, init_method=None):
    GroupMember.WORLD = Group("0", [0, 1, 2])
    barrier()
def destroy_process_group(group=None): GroupMember.WORLD = None
@logs
def new_group(ranks=None): return Group("1", ranks)
@logs
def barrier(group=None, async_op=False): return "handle" if async_op else None
@logs
def all_reduce(tensor, op=None, group=None, async_op=False):
    if tensor == "bad": raise ValueError(tensor)
@logs
def broadcast(tensor, src=None, group=None, async_op=False, group_src=None): pass
@logs
def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None): pass
@logs
def all_gather_object(object_list, obj, group=None): barrier(group)
@logs
def send(tensor, dst=None, group=None, tag=0, group_dst=None): isend(tensor, dst, group)
def isend(tensor, dst=None, group=None, tag=0, group_dst=None): return "handle"
def irecv(tensor, src=None, group=None, tag=0, group_src=None): return "handle"
def monitored_barrier(group=None): return "plain"
"""
Read = Callable[[], list[Collective]]


@pytest.fixture
def c10d(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module like torch.distributed.distributed_c10d, which is imported as such."""
    module = ModuleType("torch.distributed.distributed_c10d")
    values: dict[str, Any] = vars(module)
    exec(compile(LOGGERS, "/site-packages/torch/distributed/c10d_logger.py", "exec"), values)
    exec(compile(C10D, "/site-packages/torch/distributed/distributed_c10d.py", "exec"), values)
    torch: Any = ModuleType("torch")
    torch.Tensor, torch.nn = type("Tensor", (), {}), ModuleType("nn")
    torch.nn.Parameter = type("Parameter", (), {})
    values["torch"] = torch
    spec: Any = type("Spec", (), {"_initializing": False})()
    module.__spec__ = spec
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.fixture
def log(c10d: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[CollectiveLog]:
    """A log of that module's functions."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    made = CollectiveLog()
    made._log_functions(c10d)
    yield made
    made.stop()


@pytest.fixture
def read(log: CollectiveLog) -> Read:
    """Read what the log holds, as the monitor does."""

    def operations() -> list[Collective]:
        found = read_ring(log.ring.fd).log
        assert found is not None
        return list(found.operations)

    return operations


def test_a_call_is_logged_with_its_group_kind_number_and_place(c10d: Any, read: Read) -> None:
    c10d.init_process_group()
    for _ in range(2):
        c10d.all_reduce("x")
    first, one, two = read()
    assert (first.kind, first.group) == ("init_process_group", "")
    assert (one.kind, one.group, one.number, two.number) == ("all_reduce", "0", 1, 2)
    assert one.site.startswith("test_collective_log.py:")
    assert one.site.endswith(" test_a_call_is_logged_with_its_group_kind_number_and_place")
    assert one.file == __file__
    assert one.done is True


@pytest.mark.parametrize("how", [("gloo", "file:///nfs/store"), ("gloo",), ()])
def test_where_a_group_meets_is_logged(c10d: Any, read: Read, how: tuple[str, ...]) -> None:
    c10d.init_process_group(*how)
    assert [one.shape for one in read()] == [how[1] if len(how) > 1 else ""]


def test_what_a_collective_consists_of_is_not_logged_beside_it(c10d: Any, read: Read) -> None:
    c10d.init_process_group()
    c10d.all_gather_object([], 1)
    assert [one.kind for one in read()] == ["init_process_group", "all_gather_object"]


def test_a_call_that_has_not_returned_is_not_done(c10d: Any, read: Read) -> None:
    c10d.init_process_group()
    seen: list[Collective] = []
    original = c10d.barrier.__closure__[0].cell_contents
    inner = original.__closure__[
        original.__code__.co_freevars.index("function")
    ]  # what the log is around
    function = inner.cell_contents

    def looks(*args: Any, **kwargs: Any) -> Any:
        seen.extend(read())
        return function(*args, **kwargs)

    inner.cell_contents = looks
    c10d.barrier()
    assert [one.done for one in seen] == [True, False]
    assert read()[-1].done is True


def test_a_handle_leaves_open_whether_it_is_done(c10d: Any, read: Read) -> None:
    c10d.init_process_group()
    assert c10d.barrier(async_op=True) == "handle"
    assert read()[-1].done is None


def test_an_error_of_the_call_is_the_jobs_and_the_call_is_over(c10d: Any, read: Read) -> None:
    c10d.init_process_group()
    with pytest.raises(ValueError, match="bad"):
        c10d.all_reduce("bad")
    assert read()[-1].done is True


def test_groups_are_told_apart_with_their_members(
    c10d: Any, log: CollectiveLog, read: Read
) -> None:
    c10d.init_process_group()
    group = c10d.new_group([0, 2])
    c10d.barrier(group)
    c10d.barrier(group=group)
    c10d.barrier()
    assert [(one.group, one.kind, one.number) for one in read()[1:]] == [
        ("0", "new_group", 1),
        ("1", "barrier", 1),
        ("1", "barrier", 2),
        ("0", "barrier", 2),
    ]
    logged = read_ring(log.ring.fd).log
    assert logged is not None
    assert logged.groups == {"": (), "0": (0, 1, 2), "1": (0, 2)}


def test_a_group_that_the_rank_is_not_in_is_left_out(c10d: Any, read: Read) -> None:
    c10d.init_process_group()
    c10d.barrier(group=-100)
    assert [one.kind for one in read()] == ["init_process_group"]


def test_after_a_new_start_numbers_begin_again_and_the_old_ones_are_gone(
    c10d: Any, read: Read
) -> None:
    for calls in (3, 1):
        c10d.init_process_group()
        for _ in range(calls):
            c10d.barrier()
        if calls == 3:
            c10d.destroy_process_group()
    assert [one.number for one in read() if one.group == "0"] == [1]


def test_sends_are_counted_apart(c10d: Any, read: Read) -> None:
    c10d.init_process_group()
    c10d.barrier()
    c10d.send("x")
    c10d.barrier()
    assert [(o.kind, o.number) for o in read()[1:]] == [("barrier", 1), ("send", 1), ("barrier", 2)]


def test_whom_a_send_is_for_is_logged(c10d: Any, read: Read) -> None:
    c10d.init_process_group()
    group = c10d.new_group([0, 2])
    c10d.send("x", 2)
    c10d.isend("x", dst=1)
    c10d.irecv("x", group=group, group_src=1)
    c10d.irecv("x")  # from anybody
    found = [(one.kind, one.peer, one.done) for one in read()[2:]]
    assert found == [
        ("send", 2, True),
        ("isend", 1, None),
        ("irecv", 2, None),
        ("irecv", None, None),
    ]


def test_the_root_of_a_collective_is_logged(c10d: Any, read: Read) -> None:
    c10d.init_process_group()
    group = c10d.new_group([0, 2])
    c10d.broadcast("x", 2)
    c10d.broadcast("x", group=group, group_src=1)
    c10d.gather("x", dst=1)
    c10d.gather("x")  # at the first one: no call says so
    found = [(one.kind, one.root, one.peer) for one in read()[2:]]
    assert found == [
        ("broadcast", 2, None),
        ("broadcast", 2, None),
        ("gather", 1, None),
        ("gather", None, None),
    ]


class OnDevice:
    """What stands for a tensor there."""

    def __init__(self, kind: str) -> None:
        self.device = type("device", (), {"type": kind})()


def test_what_is_only_in_a_queue_when_the_call_returns_may_not_be_done(
    c10d: Any, read: Read
) -> None:
    c10d.init_process_group()
    group = c10d.Group("2", [0, 1])
    group.backends = "cpu:gloo,cuda:nccl"
    for tensor in (OnDevice("cuda"), OnDevice("cpu"), [OnDevice("cuda")]):
        c10d.all_reduce(tensor, group=group)
    c10d.send(OnDevice("cuda"), 1, group)
    c10d.barrier(group)
    c10d.all_gather_object([], 1, group)
    c10d.all_reduce(OnDevice("cuda"))  # by gloo
    assert [one.done for one in read()[1:]] == [None, True, None, None, True, True, True]


def test_the_ring_keeps_the_last_calls_of_each_group(c10d: Any, read: Read) -> None:
    c10d.init_process_group()
    group = c10d.new_group([0, 1])
    for _ in range(RECORDS + 10):
        c10d.barrier()
    c10d.barrier(group)
    found = read()
    assert [o.number for o in found if o.group == "0"] == list(range(12, RECORDS + 12))
    assert [o.number for o in found if o.group == "1"] == [1]


def test_functions_stay_what_they_are_for_everybody_who_has_them(c10d: Any) -> None:
    before, plain = c10d.all_reduce, c10d.monitored_barrier
    code = plain.__code__
    log = CollectiveLog()
    log._log_functions(c10d)
    assert (c10d.all_reduce, c10d.monitored_barrier) == (before, plain)
    assert plain() == "plain"
    log.uninstall()
    assert (c10d.all_reduce, c10d.monitored_barrier) == (before, plain)
    assert plain.__code__ is code


def test_a_forked_child_logs_nothing(c10d: Any, read: Read) -> None:
    c10d.init_process_group()
    child = os.fork()
    if child == 0:
        c10d.barrier()
        os._exit(0)
    os.waitpid(child, 0)
    assert [one.kind for one in read()] == ["init_process_group"]
    c10d.barrier()
    assert len(read()) == 2


def test_whatever_goes_wrong_in_the_log_the_call_is_made(
    c10d: Any, log: CollectiveLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    c10d.init_process_group()
    group = c10d.Group("broken", None)  # its members cannot be asked for
    assert c10d.barrier(group, async_op=True) == "handle"
    log.ring.memory.close()
    assert c10d.barrier(async_op=True) == "handle"


def test_a_version_of_torch_that_has_it_differently_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    bare: Any = ModuleType("torch.distributed.distributed_c10d")
    bare.__spec__ = type("Spec", (), {"_initializing": False})()
    monkeypatch.setitem(sys.modules, bare.__name__, bare)
    CollectiveLog().install()


def test_a_log_that_is_taken_out_leaves_torchs_functions_as_they_were(
    c10d: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def insides() -> list[Any]:
        names = ("barrier", "all_reduce", "init_process_group", "monitored_barrier")
        functions = [getattr(c10d, name) for name in names]
        cells = [cell.cell_contents for one in functions for cell in one.__closure__ or ()]
        return [*functions, *cells]

    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before, made = insides(), CollectiveLog()
    made._log_functions(c10d)
    assert insides() != before
    made.uninstall()
    assert insides() == before


def test_a_handler_may_call_a_collective_while_one_is_noted() -> None:
    """As Lightning's handler of SIGTERM does."""
    ring = RecordRing()
    with ring._lock:  # in the middle of a text
        assert ring.text("from the handler") > 0
        assert ring.block() > 0


def test_a_handler_that_raises_while_a_call_is_noted_leaves_nothing_entered(
    c10d: Any, log: CollectiveLog, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    c10d.init_process_group()
    c10d.barrier()
    undo = [cell for cell in (c10d.barrier.__closure__ or ()) if callable(cell.cell_contents)]
    logged = undo[0].cell_contents
    cells = dict(zip(logged.__code__.co_freevars, logged.__closure__, strict=True))

    def pack(*args: Any) -> None:
        RECORD.pack_into(*args)
        signal.raise_signal(signal.SIGUSR1)

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("the job's own")

    before = signal.signal(signal.SIGUSR1, late)
    try:
        cells["pack"].cell_contents = pack
        with pytest.raises(TimeoutError, match="the job's own"):
            c10d.barrier()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [one.done for one in read() if one.kind == "barrier"] == [True, True]


@pytest.mark.parametrize(("operations", "stays"), [(9, True), (100, False)])
def test_after_the_start_it_stays_where_it_costs_below_half_a_percent(
    c10d: Any, log: CollectiveLog, read: Read, operations: int, stays: bool
) -> None:
    """At the 10 µs that an operation may cost: of steps of 20 ms ten operations are that."""
    c10d.init_process_group()
    log.go_on_with_groups()
    now = [time.monotonic() + 1.0]
    step = log.count_steps(clock=lambda: now[0])
    for _ in range(CHECKED_AFTER + 1):
        for _ in range(operations):
            c10d.barrier()
        now[0] += 0.02
        step()
    if not stays:
        assert read_ring(log.ring.fd).log is None  # not one that has entered nothing
        return
    before = len(read())
    c10d.barrier()
    assert len(read()) > before


def test_the_pace_of_the_first_steps_is_a_pulse_at_once(log: CollectiveLog) -> None:
    """Who hangs right after them is missed as well."""
    step = log.count_steps(StepPace(at=5.0, longest=0.5), clock=lambda: 7.0)
    assert read_pulse(log.ring.fd) == Pulse(5.0, 0.5, 0)
    step()
    assert read_pulse(log.ring.fd) == Pulse(7.0, 2.0, 1)


def test_without_a_pace_there_is_no_pulse_before_a_step(log: CollectiveLog) -> None:
    log.count_steps(clock=lambda: 7.0)
    assert read_pulse(log.ring.fd) is None


def test_without_a_group_nothing_of_it_stays_but_the_pulse(c10d: Any, log: CollectiveLog) -> None:
    log.go_on_with_groups()
    log.count_steps(clock=lambda: 7.0)()
    assert read_pulse(log.ring.fd) == Pulse(7.0, 0.0, 1)
    c10d.init_process_group()
    assert parse_ring(log.ring.memory[:]) is None  # not one that has entered nothing
