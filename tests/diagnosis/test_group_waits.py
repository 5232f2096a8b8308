"""In which calls a process waits for its peers, by its stack alone."""

from __future__ import annotations

import pytest
from hangbisect.diagnosis.library_calls import find_group_call, find_group_wait
from hangbisect.diagnosis.process_snapshot import merge_looks

from .made_up import look

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
