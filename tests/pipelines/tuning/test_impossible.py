"""Which combinations of settings are refused before anything is loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.pipelines.finetuning_plan import IMPOSSIBLE, TrainingFacts, match_modules
from hangbisect.pipelines.memory_budget import PRECISIONS, TrainingPlan, find_precision
from hangbisect.pipelines.shared_steps import find_impossible, make_refusal

LORA = TrainingPlan(find_precision("fp32"), lora_rank=8)
SOUND = TrainingFacts(
    LORA, linear=("model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj")
)
OFFLOAD: dict[str, Any] = {"device_map": "auto", "offloaded": ("model.layers.1",), "devices": 2}


def ids(facts: TrainingFacts) -> list[str]:
    return [row.id for row, _ in find_impossible(facts, IMPOSSIBLE)]


def changed(facts: TrainingFacts = SOUND, **plan: Any) -> TrainingFacts:
    return replace(facts, plan=replace(facts.plan, **plan))


def test_a_sound_combination_is_let_through() -> None:
    assert ids(SOUND) == []
    assert ids(replace(SOUND, device_map="auto")) == []  # it fits: nothing is offloaded
    assert ids(changed(precision=find_precision("fp16-mixed"), lora_rank=0)) == ["scaler-on-cpu"]
    assert ids(replace(changed(precision=find_precision("fp16-mixed")), device="cuda")) == []


@pytest.mark.parametrize(
    ("plan", "facts", "expected"),
    [
        ({"gradient_checkpointing": True, "lora_rank": 0}, OFFLOAD, "offload-and-checkpointing"),
        ({}, OFFLOAD, "offload-and-lora"),
        ({"lora_rank": 0}, OFFLOAD, "offload-and-optimizer"),
        ({"ranks": 2}, {**OFFLOAD, "offloaded": ()}, "device-map-and-ranks"),
        ({}, {**OFFLOAD, "offloaded": (), "launched": True}, "device-map-and-ranks"),
        ({"precision": find_precision("fp16")}, {}, "half-without-scaler"),
        ({"precision": find_precision("fp16-mixed")}, {}, "scaler-on-cpu"),
        ({"quantization": "4bit", "lora_rank": 0}, {}, "quantized-and-full"),
        ({"quantization": "8bit"}, {"missing": frozenset({"bitsandbytes"})}, "library-missing"),
        ({"optimizer": "adamw-8bit"}, {"missing": frozenset({"bitsandbytes"})}, "library-missing"),
        ({"length": 4096}, {"longest": 2048}, "too-long"),
        ({"lora_modules": ("q_porj",)}, {}, "lora-matches-nothing"),
    ],
)
def test_what_cannot_work_is_found(
    plan: dict[str, Any], facts: dict[str, Any], expected: str
) -> None:
    assert expected in ids(replace(changed(**plan), **facts))


def test_every_row_of_the_table_has_a_case_above() -> None:
    cases = test_what_cannot_work_is_found.pytestmark[0].args[1]
    assert {case[2] for case in cases} == {row.id for row in IMPOSSIBLE}


def test_the_combination_of_offload_and_checkpointing_names_both_and_the_way_out() -> None:
    facts = replace(changed(gradient_checkpointing=True), **OFFLOAD)
    error = make_refusal(find_impossible(facts, IMPOSSIBLE))
    assert "--device-map auto" in str(error)
    assert "--gradient-checkpointing on cannot go together" in str(error)
    assert "--device-map none" in error.help
    assert "--lora-rank 8" in error.help  # the other one that is wrong
    assert "--skip preflight" in error.help


def test_a_module_that_is_nowhere_gets_the_nearest_name() -> None:
    (_, told), *_ = find_impossible(changed(lora_modules=("q_proj", "up_porj")), IMPOSSIBLE)
    assert "up_proj" in told
    assert "'q_proj'" not in told  # that one is there


def test_names_match_as_peft_matches_them() -> None:
    assert match_modules("q_proj", SOUND.linear) == ["model.layers.0.self_attn.q_proj"]
    assert match_modules("proj", SOUND.linear) == []
    assert len(match_modules("model.layers.0.mlp.up_proj", SOUND.linear)) == 1


def test_weights_that_are_not_trained_are_kept_short_where_precision_is_mixed() -> None:
    mixed = find_precision("bf16-mixed")
    assert TrainingPlan(mixed, lora_rank=8).weights_dtype == "bfloat16"
    assert TrainingPlan(mixed, lora_rank=0).weights_dtype == "float32"
    for one in PRECISIONS:
        assert one.autocast or one.weights == one.computes
