"""How long a generation is said to take, and what to change."""

from __future__ import annotations

import pytest
from hangbisect.pipelines.forecast import (
    SLOW_STEP,
    CacheLayer,
    CacheLayout,
    GpuMemory,
    OffloadLink,
    advise_if_full,
    advise_if_slow,
    describe_slow_generation,
    estimate_step_seconds,
    fit_to_context,
    forecast_step,
)
from hypothesis import given
from hypothesis import strategies as st

GIB = 1 << 30
LINKS = st.lists(
    st.builds(
        OffloadLink,
        source=st.sampled_from(["cpu", "disk"]),
        bytes=st.integers(1, 1 << 42),
        bytes_a_second=st.floats(1e6, 1e12),
    ),
    max_size=2,
)
TOKENS = st.integers(1, 512)
LAYOUT = CacheLayout((CacheLayer(2 * 8 * 128),) * 80, 2)  # a model of 70 billion, bf16


@given(LINKS, TOKENS, st.none() | st.floats(0, 100))
def test_each_token_moves_every_offloaded_byte(
    links: list[OffloadLink], tokens: int, measured: float | None
) -> None:
    moving = sum(link.bytes / link.bytes_a_second for link in links)
    found = estimate_step_seconds(links, tokens, measured)
    assert found == pytest.approx(tokens * max(moving, measured or 0.0))
    assert estimate_step_seconds(links, 2 * tokens, measured) == pytest.approx(2 * found)


@given(LINKS, TOKENS, st.floats(0.001, 100))
def test_it_is_called_slow_if_and_only_if_a_step_takes_too_long(
    links: list[OffloadLink], tokens: int, measured: float
) -> None:
    slow = estimate_step_seconds(links, tokens, measured) > SLOW_STEP
    assert (advise_if_slow(links, tokens, measured) is not None) == slow


def test_forty_gigabytes_over_a_link_make_a_step_of_minutes() -> None:
    link = OffloadLink("cpu", 40 * GIB, 20 * GIB)
    assert forecast_step([link], 60, None) == (
        "about 120.0 s, 2.0 min for 60 tokens; each token moves 40 GiB from the cpu at 20 GiB/s, "
        "which takes 2.000 s"
    )
    said = advise_if_slow([link], 512, None)
    assert said is not None
    assert "no hang: a step will take 1024.0 s, 17.1 min" in said
    assert "--max-new-tokens 128: 256.0 s" in said


def gpu(free: float) -> GpuMemory:
    return GpuMemory("GPU 0", int(35 * GIB), int(37 * GIB), int(free * GIB), 40 * GIB)


def test_a_gpu_that_is_full_is_told_what_the_cache_wants() -> None:
    said = advise_if_full(gpu(free=3), LAYOUT, 4, 2560)
    assert said is not None
    assert "GPU 0 is 92% full before generation, 3 GiB free" in said
    assert "4 x 2560 tokens wants 3.12 GiB: it does not fit; of 1280 tokens 1.56 GiB" in said


def test_a_gpu_with_room_is_told_nothing() -> None:
    assert advise_if_full(gpu(free=5), LAYOUT, 4, 2560) is None


def test_a_cache_of_unknown_size_makes_no_figure_up() -> None:
    said = advise_if_full(gpu(free=1), None, 1, 10)
    assert said is not None
    assert "KV" not in said


def test_while_it_runs_it_says_how_far_it_is_and_what_moves() -> None:
    said = describe_slow_generation(120, 40, 512, [OffloadLink("disk", GIB, 1e9)])
    assert "40 of 512 tokens, 3.00 s each: slow, no hang, about 1416.0 s, 23.6 min left" in said
    assert "1 GiB from the disk" in said


def test_without_a_token_nothing_is_foretold() -> None:
    said = describe_slow_generation(120, 0, 512, [])
    assert "not one token yet" in said
    assert "no hang" not in said


@given(st.integers(1, 10**5), TOKENS, st.none() | st.integers(2, 10**5))
def test_prompt_and_answer_fit_into_what_a_model_knows(
    prompt: int, new: int, positions: int | None
) -> None:
    found = fit_to_context(prompt, new, positions)
    assert found <= (prompt, new)
    assert min(found) >= 1
    if positions is None or prompt + new <= positions:
        assert found == (prompt, new)
    else:
        assert sum(found) <= positions
