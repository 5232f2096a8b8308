"""The nearest setting that fits, and what a budget says in words."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.pipelines.budget_advice import (
    divide_over_gpus,
    find_nearest_fit,
    format_budget,
    format_fit,
    iterate_plans,
    list_changes,
)
from hangbisect.pipelines.memory_budget import (
    Budget,
    FreeMemory,
    HeldMemory,
    Overhead,
    TrainingPlan,
    apply_zero_stage,
    estimate_overhead,
    find_precision,
)
from hypothesis import given
from hypothesis import strategies as st

GIB = 1 << 30
PLAN = TrainingPlan(find_precision("fp32"), batch_size=8, accumulation=2, length=512, lora_rank=64)


def budget(plan: TrainingPlan, free: int = 24 * GIB) -> Budget:
    """Return a budget of a made-up model whose activations go with tokens: 1 GiB for 1,024."""
    weights = 14 * GIB if plan.weights_dtype == "float32" else 7 * GIB
    activations = plan.batch_size * plan.length * GIB // 1024
    if plan.gradient_checkpointing:
        activations //= 8
    lora = plan.lora_rank * GIB // 128
    held = HeldMemory(
        {plan.weights_dtype: weights},
        lora=lora,
        trained=lora // 4,
        gradients=lora,
        optimizer=2 * lora,
        peak=weights + 4 * lora + activations,
        gradients_at_peak=lora,
        optimizer_at_peak=2 * lora,
        moment="in backward",
    )
    return Budget(plan, FreeMemory("GPU 0", free, 24 * GIB), held, Overhead())


def test_what_changes_nothing_about_the_result_is_tried_first() -> None:
    found = find_nearest_fit(PLAN, lambda plan: budget(plan, 17 * GIB))
    assert found is not None
    assert found.changes == ("--gradient-checkpointing on",)


def test_smaller_batches_keep_the_effective_batch() -> None:
    plan = replace(PLAN, gradient_checkpointing=True)
    found = find_nearest_fit(plan, lambda plan: budget(plan, int(16.2 * GIB)))
    assert found is not None
    assert found.changes == ("--micro-batch 2",)
    assert found.budget.plan.accumulation == 8
    assert found.budget.plan.effective_batch == PLAN.effective_batch


def test_another_precision_comes_before_another_rank_and_length() -> None:
    found = find_nearest_fit(PLAN, lambda plan: budget(plan, 10 * GIB))
    assert found is not None
    assert "--precision bf16" in found.changes
    assert not any("rank" in change or "length" in change for change in found.changes)


def test_where_nothing_fits_there_is_none() -> None:
    assert find_nearest_fit(PLAN, lambda plan: budget(plan, GIB)) is None


@given(
    batch=st.integers(1, 16),
    batches=st.integers(1, 8),
    rank=st.sampled_from([0, 4, 8, 128]),
    checkpoints=st.booleans(),
    ranks=st.integers(1, 4),
)
def test_every_candidate_is_a_change_that_can_be_told(
    batch: int, batches: int, rank: int, checkpoints: bool, ranks: int
) -> None:
    plan = TrainingPlan(
        find_precision("fp32"),
        batch,
        batches,
        512,
        rank,
        gradient_checkpointing=checkpoints,
        ranks=ranks,
    )
    for candidate in iterate_plans(plan):
        assert candidate.effective_batch == plan.effective_batch
        assert candidate.batch_size <= plan.batch_size
        assert list_changes(plan, candidate)


def test_zero_shares_what_its_stage_says() -> None:
    plan = replace(PLAN, ranks=4)
    held = budget(plan).held
    alone = apply_zero_stage(held, replace(plan, zero_stage=0))
    assert alone == held
    first = apply_zero_stage(held, replace(plan, zero_stage=1))
    assert (first.optimizer, first.gradients) == (held.optimizer // 4, held.gradients)
    third = apply_zero_stage(held, replace(plan, zero_stage=3))
    assert third.all_weights == held.all_weights // 4
    assert third.activations == held.activations
    assert estimate_overhead(held, plan, on_gpu=False).ddp_buckets == held.gradients
    assert estimate_overhead(held, replace(plan, zero_stage=1), on_gpu=False).ddp_buckets == 0


def test_the_table_adds_up_and_says_what_is_missing() -> None:
    found = budget(PLAN, 12 * GIB)
    assert not found.fits
    assert found.is_hopeless  # 14 GiB of weights alone
    lines = format_budget(found)
    assert any(line.startswith("  MISSING") for line in lines)
    assert lines[0].startswith("memory of each rank, 8 x 512 tokens")
    assert any(line.startswith("  activations, without checkpointing") for line in lines)
    assert all(len(line) <= 68 for line in lines)  # a terminal's 80, or a little more
    parts = found.held.all_weights + found.held.lora + found.held.gradients_at_peak
    assert parts + found.held.optimizer_at_peak + found.held.activations == found.held.peak
    told = format_fit(found, None, tried=True)
    assert "does NOT fit" in told[0]
    assert format_fit(budget(PLAN, 24 * GIB), None, tried=False)[0].startswith("It fits")


@given(st.lists(st.integers(0, 48), min_size=1, max_size=8))
def test_a_model_is_divided_only_over_gpus_that_hold_it_with_all_that_it_needs(
    gigabytes: list[int],
) -> None:
    found = budget(PLAN, 12 * GIB)
    limits = divide_over_gpus(found, [one * GIB for one in gigabytes])
    held = found.held
    kept = held.all_weights + held.lora + held.gradients + held.optimizer
    room = sum(max(0, one * GIB - held.activations) for one in gigabytes)
    assert (limits is not None) == (room * held.all_weights // kept >= held.all_weights) or (
        abs(room - kept) <= len(gigabytes)  # rounding, at the edge
    )
    for told, one in zip(limits or (), gigabytes, strict=False):
        assert float(told.partition("=")[2].removesuffix("GiB")) * GIB <= one * GIB
