"""How much memory a module alone will take."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.pipelines.memory_budget import FreeMemory
from hangbisect.pipelines.replay_preflight import (
    ModuleMemory,
    ReplayMode,
    estimate_memory,
    format_memory,
)
from hypothesis import given
from hypothesis import strategies as st

FULL, HALF, FROZEN = (1000, 4, True), (1000, 2, True), (500, 2, False)
STAGES = ("off", "0", "1", "2", "3")
PARAMETERS = st.lists(
    st.tuples(st.integers(0, 1 << 30), st.sampled_from([2, 4, 8]), st.booleans()), max_size=8
)
WANTED = st.builds(
    ReplayMode,
    backward=st.booleans(),
    zero=st.sampled_from(STAGES),
    precision=st.sampled_from(["as-set", "bf16", "fp32"]),
    ranks=st.integers(1, 64),
)


def test_a_forward_takes_the_weights_and_the_input() -> None:
    assert estimate_memory([FULL, FROZEN], ReplayMode(), 70) == ModuleMemory(
        weights=5000, inputs=70
    )


def test_a_backward_takes_gradients_of_what_is_trained() -> None:
    found = estimate_memory([FULL, FROZEN], ReplayMode(backward=True), 0)
    assert (found.weights, found.gradients, found.needed) == (5000, 4000, 9000)


@pytest.mark.parametrize(
    ("precision", "weights"), [("as-set", 6000), ("bf16", 4000), ("fp32", 8000)]
)
def test_precision_sets_what_a_weight_takes(precision: str, weights: int) -> None:
    assert estimate_memory([FULL, HALF], ReplayMode(precision=precision), 0).weights == weights


def test_zero_keeps_copies_in_float32_of_what_is_shorter() -> None:
    assert estimate_memory([HALF, FROZEN], ReplayMode(zero="0"), 0).copies == 4000
    assert estimate_memory([FULL], ReplayMode(zero="0"), 0).copies == 0
    assert estimate_memory([FULL], ReplayMode(zero="0", precision="bf16"), 0).copies == 4000
    assert estimate_memory([HALF], ReplayMode(), 0).copies == 0


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        ("off", (2000, 2000, 0)),
        ("0", (2000, 2000, 4000)),
        ("1", (2000, 2000, 1000)),
        ("2", (2000, 500, 1000)),
        ("3", (500, 500, 1000)),
    ],
)
def test_each_stage_divides_more(zero: str, expected: tuple[int, int, int]) -> None:
    found = estimate_memory([HALF], ReplayMode(backward=True, zero=zero, ranks=4), 0)
    assert (found.weights, found.gradients, found.copies) == expected


@given(PARAMETERS, WANTED, st.integers(0, 1 << 30))
def test_more_ranks_never_need_more_and_a_backward_never_less(
    parameters: list[tuple[int, int, bool]], wanted: ReplayMode, inputs: int
) -> None:
    found = estimate_memory(parameters, wanted, inputs)
    more = estimate_memory(parameters, replace(wanted, ranks=wanted.ranks + 1), inputs)
    assert more.needed <= found.needed
    forward = estimate_memory(parameters, replace(wanted, backward=False), inputs)
    assert forward.needed == found.needed - found.gradients


@given(PARAMETERS, WANTED)
def test_one_rank_divides_nothing(
    parameters: list[tuple[int, int, bool]], wanted: ReplayMode
) -> None:
    alone = [replace(wanted, zero=zero, ranks=1) for zero in STAGES[1:]]
    assert len({estimate_memory(parameters, one, 0) for one in alone}) == 1


def test_the_line_names_what_there_is_and_what_is_left() -> None:
    free = FreeMemory("the CPU", 5 << 20, 8 << 20)
    line = format_memory(ModuleMemory(weights=2 << 20, inputs=1 << 20), free)
    assert line == (
        "Memory: weights 2 MiB, the largest input 1 MiB, and activations; "
        "5 MiB of 8 MiB are free, the CPU: 2 MiB left"
    )


def test_the_line_says_how_much_is_missing() -> None:
    free = FreeMemory("GPU 0 NVIDIA H100", 5 << 20, 8 << 20)
    line = format_memory(ModuleMemory(4 << 20, gradients=4 << 20, copies=8 << 20), free)
    assert "gradients 4 MiB, copies in float32 8 MiB, and activations" in line
    assert line.endswith("free, GPU 0 NVIDIA H100: 11 MiB missing")


def test_a_module_without_weights_takes_nothing() -> None:
    assert format_memory(
        estimate_memory([], ReplayMode(), 0), FreeMemory("the CPU", 1, 1)
    ).startswith("Memory: nothing, and activations; ")
