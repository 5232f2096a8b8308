"""A rank that calls a function of another one (torch.distributed.rpc) waits for the rank that runs
it, where that is known: the thread that runs it stands still.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.identity import RankId
from hangbisect.base.process_facts import Frame, Look, Thread
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.process.remote_calls import Worker, choose_server
from hangbisect.diagnosis.verdict import judge_job

from .made_up import RECV, job, look, rank, stack

API = "SP/torch/distributed/rpc/api.py"
THREAD = 912


STUCK = look("stuck train.py:3", "<module> train.py:9", call="clock_nanosleep")


def _with_local(frames: tuple[Frame, ...], name: str, **told: str) -> tuple[Frame, ...]:
    locals = tuple((key, f"'{value}'") for key, value in told.items())
    return tuple(replace(f, locals=locals) if f.name == name else f for f in frames)


def calls(to: str = "w1") -> Look:
    """A rank in rpc_sync."""
    made = look(f"rpc_sync {API}:842", f"wrapper {API}:99", "<module> train.py:7")
    main = made.threads[0]
    return replace(
        made, threads=(replace(main, frames=_with_local(main.frames, "rpc_sync", to=to)),)
    )


def leaves(name: str = "") -> Look:
    """A rank whose main thread waits in rpc.shutdown() until all calls are done."""
    made = look(
        "Condition.wait STD/threading.py:327",
        "Event.wait STD/threading.py:629",
        f"_all_gather {API}:257",
        f"_wait_all_workers {API}:320",
        f"shutdown {API}:382",
        f"_require_initialized.<locals>.wrapper {API}:99",
        "<module> train.py:8",
    )
    told = {"self_name": name} if name else {}
    main = made.threads[0]
    frames = _with_local(main.frames, "_all_gather", **told)
    return replace(made, threads=(replace(main, frames=frames),))


def tells_the_leader() -> Look:
    """One whose main thread is in rpc.shutdown() as well, and gets no answer from the leader."""
    return look(
        f"rpc_sync {API}:842",
        f"_require_initialized.<locals>.wrapper {API}:99",
        f"_all_gather {API}:248",
        f"_wait_all_workers {API}:320",
        f"shutdown {API}:382",
        f"_require_initialized.<locals>.wrapper {API}:99",
        "<module> train.py:8",
    )


NEVER = (
    "Condition.wait STD/threading.py:327",
    "Event.wait STD/threading.py:629",
    "never train.py:3",
)


def serves(one: Look, *inside: str) -> Look:
    """The same with a thread that runs a function for another rank."""
    run = "_run_function SP/torch/distributed/rpc/internal.py:209"
    return replace(
        one, threads=(*one.threads, Thread(THREAD, None, False, False, stack(*inside, run)))
    )


def culprits(*ranks: RankFacts) -> tuple[RankId, ...]:
    return tuple(judge_job(job(world=len(ranks)), list(ranks)).ranks.culprit)


def test_the_rank_whose_thread_runs_the_function_is_to_blame_and_not_who_called_it() -> None:
    found = judge_job(job(), [rank(0, calls()), rank(1, serves(leaves(), *NEVER))])
    assert tuple(found.ranks.culprit) == (1,)
    assert tuple(found.ranks.waiting) == (0,)


def test_a_last_look_without_a_stack_hides_nothing_of_that() -> None:
    """py-spy may give no answer on a process with a thread that never rests."""
    looks = serves(leaves("w1"), *NEVER), replace(look(), at=101.0, rung="proc")
    assert culprits(rank(0, calls()), rank(1, *looks)) == (1,)


def test_so_it_is_for_all_that_called_it() -> None:
    callers = rank(0, calls()), rank(2, calls())
    assert culprits(callers[0], rank(1, serves(leaves(), *NEVER)), callers[1]) == (1,)


def test_of_several_that_run_one_the_name_of_the_worker_tells() -> None:
    one, other = serves(leaves("w1"), *NEVER), serves(leaves("w2"), *NEVER)
    found = judge_job(job(world=3), [rank(0, calls("w2")), rank(1, one), rank(2, other)])
    assert 0 not in tuple(found.ranks.culprit)
    assert 2 in tuple(found.ranks.culprit)


def test_where_nobody_runs_one_or_another_worker_was_called_nothing_is_known() -> None:
    idle = culprits(rank(0, calls()), rank(1, leaves()))
    assert idle == (0, 1)
    other = culprits(rank(0, calls("w2")), rank(1, serves(leaves("w1"), *NEVER)), rank(2, leaves()))
    assert 0 in other


def test_a_function_that_waits_for_a_rank_itself_makes_nobody_to_blame_alone() -> None:
    back = serves(leaves(), f"rpc_sync {API}:842", "again train.py:3")
    assert culprits(rank(0, calls()), rank(1, back)) != (1,)


def test_a_function_of_the_same_name_elsewhere_is_no_such_call() -> None:
    own = look("rpc_sync train.py:842", "<module> train.py:7")
    assert 0 in culprits(rank(0, own), rank(1, serves(leaves(), *NEVER)))


@pytest.mark.parametrize("waits", [leaves(), leaves("w0"), tells_the_leader()])
def test_who_waits_in_shutdown_for_a_rank_that_has_not_come_is_not_blamed(waits: Look) -> None:
    """shutdown() returns once all workers are in it (_wait_all_workers in rpc/api.py): it waits in
    an Event of Python, and no thread of its own is to set that.
    """
    for other in (STUCK, RECV):
        found = judge_job(job(), [rank(0, waits), rank(1, other)])
        assert (tuple(found.ranks.culprit), tuple(found.ranks.waiting)) == ((1,), (0,))
        assert found.call != "torch.distributed.rpc.shutdown"
        assert "shutdown (api.py:382)" in [edge.evidence for edge in found.chain]


def test_so_it_is_in_init_rpc() -> None:
    comes = look(
        "Condition.wait STD/threading.py:331",
        "Event.wait STD/threading.py:629",
        f"_all_gather {API}:257",
        "_tensorpipe_init_backend_handler SP/torch/distributed/rpc/backend_registry.py:396",
        "init_rpc SP/torch/distributed/rpc/__init__.py:170",
        "<module> train.py:8",
    )
    found = judge_job(job(), [rank(0, STUCK), rank(1, comes)])
    assert (tuple(found.ranks.culprit), tuple(found.ranks.waiting)) == ((0,), (1,))


def test_who_runs_a_function_in_shutdown_is_to_blame_for_that_function() -> None:
    found = judge_job(job(), [rank(0, leaves()), rank(1, serves(leaves(), *NEVER))])
    assert tuple(found.ranks.culprit) == (1,)


def test_a_function_of_that_name_elsewhere_waits_for_nobody() -> None:
    own = look("Event.wait STD/threading.py:629", "_all_gather train.py:257", "<module> train.py:8")
    assert 0 in culprits(rank(0, own), rank(1, STUCK))


@pytest.mark.parametrize("other", [STUCK, RECV])
def test_where_nobody_runs_what_was_called_who_stands_elsewhere_is_waited_for(other: Look) -> None:
    """A function that answers later (functions.async_execution) has no thread while it waits: a
    parameter server that answers once all have pushed. Who calls and who leaves waits for the rank
    that has done neither.
    """
    ranks = rank(0, leaves("w0")), rank(1, calls("w0")), rank(2, calls("w0")), rank(3, other)
    found = judge_job(job(world=4), list(ranks))
    assert (tuple(found.ranks.culprit), tuple(found.ranks.waiting)) == ((3,), (0, 1, 2))
    without_server = judge_job(job(), [rank(0, calls("w2")), rank(1, other)])
    assert (tuple(without_server.ranks.culprit), tuple(without_server.ranks.waiting)) == (
        (1,),
        (0,),
    )


def test_a_rank_in_a_collective_is_not_elsewhere() -> None:
    meets = look(
        "barrier SP/torch/distributed/distributed_c10d.py:5356",
        "wrapper SP/torch/distributed/c10d_logger.py:83",
        "<module> train.py:9",
    )
    assert culprits(rank(0, leaves("w0")), rank(1, calls("w0")), rank(2, meets)) != (2,)


def _calls_whom(to: str, *workers: Worker, world: int = 0) -> RankId | None:
    (call, *_) = calls(to).threads[0].frames
    return choose_server(call, 0, [Worker(0, "", False), *workers], world or len(workers) + 1)


def test_who_says_the_name_is_meant_and_only_if_it_runs_a_function() -> None:
    assert _calls_whom("trainer", Worker(1, "server", True), Worker(2, "trainer", True)) == 2
    assert _calls_whom("trainer", Worker(1, "", True), Worker(2, "trainer", False)) is None


def test_the_only_other_rank_is_meant_by_whatever_name() -> None:
    assert _calls_whom("trainer", Worker(1, "", True)) == 1
    assert _calls_whom("trainer", Worker(1, "", True), Worker(2, "server", False)) == 1
    assert _calls_whom("trainer", Worker(1, "server", True)) is None


def test_of_more_ranks_the_only_one_that_runs_a_function_is_only_if_its_number_agrees() -> None:
    others = Worker(1, "", True), Worker(2, "", False)
    assert _calls_whom("w1", *others) == 1
    assert _calls_whom("w2", *others) is None
    assert _calls_whom("trainer", *others) is None
    assert _calls_whom("w1", Worker(1, "", True), Worker(2, "", True)) is None


def test_ranks_that_are_not_seen_may_be_meant_as_well() -> None:
    assert _calls_whom("trainer", Worker(1, "", True), world=4) is None


def awaits_a_future() -> Look:
    """A rank in wait() of what rpc_async() returned: a function of C++, without a frame of Python
    (torch 2.13; py-spy shows it with native frames).
    """
    made = look("<listcomp> train.py:36", "main train.py:36", call="futex")
    main = made.threads[0]
    native = ("pthread_cond_wait", "torch::jit::PythonFutureWrapper::wait")
    frames = tuple(Frame(name, "/usr/lib/libtorch_python.so", 0, native=True) for name in native)
    return replace(made, threads=(replace(main, frames=(*frames, *main.frames)),))


def test_who_waits_for_a_future_waits_for_the_only_rank_that_runs_a_function() -> None:
    ranks = [
        rank(0, awaits_a_future(), awaits_a_future()),
        rank(1, leaves("w1"), leaves("w1")),
        rank(2, serves(leaves("w2"), *NEVER), serves(leaves("w2"), *NEVER)),
    ]
    found = judge_job(job(world=3), ranks)
    assert (found.ranks.culprit, found.ranks.waiting) == ((2,), (0, 1))


def test_of_two_that_run_functions_nothing_says_whose_future_it_is() -> None:
    ranks = [
        rank(0, awaits_a_future(), awaits_a_future()),
        *(rank(n, serves(leaves(), *NEVER), serves(leaves(), *NEVER)) for n in (1, 2)),
    ]
    assert {1, 2} <= {*culprits(*ranks)}


def test_a_future_is_of_a_remote_call_only_where_one_is_run() -> None:
    ranks = [rank(0, awaits_a_future(), awaits_a_future()), rank(1, leaves(), leaves())]
    assert culprits(*ranks) == (0,)
