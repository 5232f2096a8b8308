"""The arguments of a fine-tuning, and the plan that they make."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.base.place import find_place
from hangbisect.pipelines.finetuning_plan import check_counts, make_plan, memory_size, name_list
from hangbisect.pipelines.shared_steps import cut_rows
from hangbisect.rank.arguments import parse_walk_arguments


def parsed(*words: str) -> Any:
    clean = {name: value for name, value in os.environ.items() if "HANGBISECT" not in name}
    return parse_walk_arguments(["--pipeline", "finetuning", *words], find_place(), clean)[0]


def test_a_smaller_batch_keeps_the_effective_one() -> None:
    assert make_plan(parsed(), 1).accumulation == 1
    plan = make_plan(parsed("--micro-batch", "1", "--batch-size", "16"), 2)
    assert (plan.batch_size, plan.accumulation, plan.effective_batch, plan.ranks) == (1, 16, 16, 2)
    small = make_plan(parsed("--batch-size", "2"), 1)  # no larger at once than the batch itself
    assert (small.batch_size, small.accumulation) == (2, 1)


def test_a_batch_that_does_not_go_into_the_effective_one_is_refused() -> None:
    with pytest.raises(UsageError, match="--micro-batch 3 is no part of --batch-size 8") as got:
        check_counts(parsed("--micro-batch", "3"))
    assert "1, 2, 4, 8" in got.value.help
    with pytest.raises(UsageError, match="--micro-batch cannot be 0"):
        check_counts(parsed("--micro-batch", "0"))


def test_sizes_are_of_powers_of_two() -> None:
    read = memory_size("--free-memory")
    assert read("24GB") == read("24gib") == 24 << 30
    assert read("1.5MB") == 3 << 19
    for wrong in ("24", "0GB", "lots", "-1GB"):
        with pytest.raises(UsageError, match="--free-memory cannot be"):
            read(wrong)


def test_names_come_in_a_list() -> None:
    assert name_list("q_proj, v_proj,") == ("q_proj", "v_proj")
    assert parsed("--lora-modules", "c_attn").lora_modules == ("c_attn",)


def test_rows_are_full_and_there_is_always_one() -> None:
    assert cut_rows([[1, 2, 3], [4, 5]], 2) == [[1, 2], [3, 4]]
    assert cut_rows([[1]], 4) == [[1, 1, 1, 1]]
    with pytest.raises(ValueError, match="no tokens"):
        cut_rows([[]], 4)
