"""In which calls a process waits for its peers, by its stack alone."""

from __future__ import annotations

import pytest
from hangbisect.diagnosis.process_snapshot import merge_looks
from hangbisect.diagnosis.public_calls import find_group_call, find_group_wait
from hangbisect.diagnosis.verdict import judge_job

from .made_up import SLEEP, job, look, rank

WAITS_FUNCTIONALLY = "wait_tensor SP/torch/distributed/_functional_collectives.py:140"


@pytest.mark.parametrize(
    "dispatcher",
    ["OpOverloadPacket.__call__ SP/torch/_ops.py:1279", "OpOverload.__call__ SP/torch/_ops.py:841"],
)
def test_who_calls_an_operator_tells_what_it_waits_for(dispatcher: str) -> None:
    """A functional collective waits in C++, called through torch's operators, which are the
    innermost frame: without native frames only its caller tells (torch/_ops.py).
    """
    view = merge_looks([look(dispatcher, WAITS_FUNCTIONALLY, "train train.py:9")])
    assert view is not None
    assert find_group_wait(view) == "collective"


def test_an_operator_of_the_jobs_own_waits_for_nobody() -> None:
    view = merge_looks([look("OpOverload.__call__ SP/torch/_ops.py:841", "train train.py:9")])
    assert view is not None
    assert find_group_wait(view) is None


def test_a_functional_collective_that_computes_waits_for_nobody() -> None:
    frames = ("OpOverload.__call__ SP/torch/_ops.py:841", WAITS_FUNCTIONALLY)
    view = merge_looks([look(*frames, call="", state="R")])
    assert view is not None
    assert find_group_wait(view) is None


@pytest.mark.parametrize("folder", ["lightning_fabric", "lightning/fabric"])
@pytest.mark.parametrize("method", ["__call__", "__exit__"])
def test_lightnings_own_barrier_meets_the_others_wherever_it_is_entered(
    folder: str, method: str
) -> None:
    """`_InfiniteBarrier` calls a method of the process group in C++, so its own frame is the
    innermost one: `__exit__` after prepare_data, `__call__` in Fabric.rank_zero_first, where the
    other ranks wait for as long as rank 0 is in the block (lightning_fabric/fabric.py).
    """
    barrier = f"_InfiniteBarrier.{method} SP/{folder}/utilities/distributed.py:418"
    view = merge_looks([look(barrier, "Fabric.rank_zero_first fabric.py:728", "main train.py:9")])
    assert view is not None
    assert find_group_wait(view) == "collective"
    assert find_group_call(view.frames) == "barrier"


@pytest.mark.parametrize(
    "frame",
    [
        "_init_process_group SP/torch/distributed/rpc/backend_registry.py:123",
        "_tensorpipe_init_backend_handler SP/torch/distributed/rpc/backend_registry.py:381",
    ],
)
@pytest.mark.parametrize("call", ["clock_nanosleep", "poll", "futex"])
def test_init_rpc_makes_a_group_with_the_others(frame: str, call: str) -> None:
    """In C++ it asks a store for the other workers: one in a file is asked again after a sleep."""
    looked = look(frame, "init_rpc SP/torch/distributed/rpc/__init__.py:170", call=call)
    view = merge_looks([looked])
    assert view is not None
    assert find_group_wait(view) == "construction"


def test_init_rpc_that_is_not_there_yet_keeps_a_rank_from_being_blamed() -> None:
    makes = look(
        "_init_process_group SP/torch/distributed/rpc/backend_registry.py:123",
        "_tensorpipe_init_backend_handler SP/torch/distributed/rpc/backend_registry.py:349",
        "init_rpc SP/torch/distributed/rpc/__init__.py:170",
        "<module> train.py:4",
        call="clock_nanosleep",
    )
    found = judge_job(job(), [rank(0, makes), rank(1, SLEEP)])
    assert (tuple(found.ranks.culprit), tuple(found.ranks.waiting)) == ((1,), (0,))


@pytest.mark.parametrize(
    "frame",
    [
        "wrapped_fn SP/deepspeed/utils/nvtx.py:25",  # AllGatherHandle.wait of stage 3
        "_allgather_params_coalesced SP/deepspeed/runtime/zero/partition_parameters.py:2112",
        "wait SP/deepspeed/runtime/pipe/p2p.py:90",
        "_wait_batch_p2p SP/torch/distributed/pipelining/schedules.py:683",
        "wait_for_broadcasts SP/torch/distributed/optim/zero_redundancy_optimizer.py:276",
    ],
)
def test_a_library_that_waits_for_the_handle_of_an_operation_waits_for_its_peers(
    frame: str,
) -> None:
    """Work.wait() is a method in C++: the library's own function is the innermost frame."""
    view = merge_looks([look(frame, "train train.py:9")])
    assert view is not None
    assert find_group_wait(view) == "collective"
    computes = merge_looks([look(frame, "train train.py:9", call="", state="R")])
    assert computes is not None
    assert find_group_wait(computes) is None
