"""Which combinations of settings are refused before a module is built."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.pipelines.replay_preflight import IMPOSSIBLE, ReplayFacts
from hangbisect.pipelines.shared_steps import find_impossible, make_refusal

SOUND = ReplayFacts()
ON_GPU: dict[str, Any] = {"device": "cuda"}
FLASH: dict[str, Any] = {**ON_GPU, "compile": "inductor", "attention": "flash"}
PACKED: dict[str, Any] = {**FLASH, "packing": "on"}
DEEP: dict[str, Any] = {**ON_GPU, "compile": "deepcompile", "zero": "1"}
NO_FLASH: dict[str, Any] = {"missing": frozenset({"flash_attn"})}
NO_ZERO: dict[str, Any] = {"missing": frozenset({"deepspeed"})}
OURS: dict[str, Any] = {**ON_GPU, "attention": "flash", "of_transformers": True}


def ids(facts: ReplayFacts) -> list[str]:
    return [row.id for row, _ in find_impossible(facts, IMPOSSIBLE)]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (PACKED, "compiled-flash-packed"),
        ({**PACKED, "compile": "eager"}, "compiled-flash-packed"),
        ({**FLASH, "packed": True}, "compiled-flash-packed"),
        ({**DEEP, "zero": "off"}, "deepcompile-without-zero"),
        ({**DEEP, "zero": "0"}, "deepcompile-without-zero"),
        ({**DEEP, "device": "cpu"}, "deepcompile-without-gpu"),
        ({**OURS, **NO_FLASH}, "flash-without-library"),
        ({**ON_GPU, "attention": "flash", "precision": "fp32"}, "flash-in-full-precision"),
        ({**NO_ZERO, "zero": "0"}, "zero-without-library"),
    ],
)
def test_what_cannot_work_is_found(facts: dict[str, Any], expected: str) -> None:
    assert ids(replace(SOUND, **facts)) == [expected]


@pytest.mark.parametrize(
    ("facts", "without"),
    [
        ({}, "anything"),
        ({**PACKED, "compile": "off"}, "compiled-flash-packed"),
        ({**PACKED, "attention": "sdpa"}, "compiled-flash-packed"),
        ({**PACKED, "attention": None}, "compiled-flash-packed"),
        ({**FLASH, "packed": True, "packing": "off"}, "compiled-flash-packed"),
        (FLASH, "compiled-flash-packed"),
        (DEEP, "deepcompile-without-zero"),
        ({**DEEP, "zero": "3"}, "deepcompile-without-gpu"),
        (OURS, "flash-without-library"),
        ({**OURS, **NO_FLASH, "of_transformers": False}, "flash-without-library"),
        ({**OURS, **NO_FLASH, "attention": "sdpa"}, "flash-without-library"),
        ({**ON_GPU, "attention": "flash", "precision": "bf16"}, "flash-in-full-precision"),
        ({**ON_GPU, "attention": "sdpa", "precision": "fp32"}, "flash-in-full-precision"),
        ({"attention": "flash", "precision": "fp32"}, "flash-in-full-precision"),
        ({"zero": "3"}, "zero-without-library"),
        (NO_ZERO, "zero-without-library"),
    ],
)
def test_what_can_work_is_let_through(facts: dict[str, Any], without: str) -> None:
    assert ids(replace(SOUND, **facts)) == []


def test_every_row_of_the_table_has_a_case_above_for_both() -> None:
    every = {row.id for row in IMPOSSIBLE}
    found = test_what_cannot_work_is_found.pytestmark[0].args[1]
    assert {case[1] for case in found} == every
    let_through = test_what_can_work_is_let_through.pytestmark[0].args[1]
    assert {case[1] for case in let_through} == {*every, "anything"}


def test_compiled_flash_attention_of_packed_samples_names_both_ways_out() -> None:
    error = make_refusal(find_impossible(replace(SOUND, **PACKED), IMPOSSIBLE))
    assert str(error) == (
        "--compile inductor, --attention flash and --packing on cannot go together"
    )
    assert "argument 'max_seqlen_q' but instead found type 'FakeTensor'" in error.help
    assert "--packing off" in error.help
    assert "--attention sdpa" in error.help
    assert "--skip preflight" in error.help


def test_inputs_that_came_packed_are_said_to_be() -> None:
    error = make_refusal(find_impossible(replace(SOUND, **FLASH, packed=True), IMPOSSIBLE))
    assert "and inputs that were captured packed cannot go together" in str(error)


def test_of_several_the_first_is_the_error_and_all_ways_out_are_named_once() -> None:
    facts = replace(SOUND, compile="deepcompile", zero="off")
    error = make_refusal(find_impossible(facts, IMPOSSIBLE))
    assert str(error) == "--compile deepcompile and --zero off cannot go together"
    assert "Nor can --compile deepcompile and a replay on the CPU" in error.help
    ways = [line for line in error.help.splitlines() if line.startswith("Instead: ")]
    assert len(ways) == len(set(ways)) == 2
