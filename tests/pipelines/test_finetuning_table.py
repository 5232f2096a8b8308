"""The table of the fine-tuning: the numbers, names and titles that others rely on."""

from __future__ import annotations

from hangbisect.base.pipeline import find_pipeline

CONTRACT = """
 0 launcher               Ranks started               launcher
 1 script                 Script started              interpreter
 2 arguments              Args parsed                 arguments
 3 configuration          Configuration read          hub
 4 preflight              Preflight passed            model
 5 memory_budget          Memory budget made          memory
 6 tokenizer              Tokenizer loaded            hub
 7 model                  Model on its device         model
 8 lora                   LoRA ready                  lora
 9 gradient_checkpointing Gradient checkpointing set  model
10 data                   Data ready                  data
11 trainer                Trainer ready               trainer
12 training               Training finished           fit
13 checkpoint             Checkpoint written          checkpoint
"""
PHASES = (
    *("launch", "first_batch", "first_forward", "first_backward", "first_step", "steady"),
    "teardown",
)


def test_the_table_is_the_contract() -> None:
    rows = [line.split() for line in CONTRACT.strip().splitlines()]
    expected = [(int(row[0]), row[1], " ".join(row[2:-1]), row[-1]) for row in rows]
    table = find_pipeline("finetuning").table
    assert [(c.number, c.name, c.title, c.component) for c in table] == expected


def test_training_has_its_phases_and_only_the_steady_one_is_never_late() -> None:
    training = next(row for row in find_pipeline("finetuning").table if row.name == "training")
    assert tuple(phase.name for phase in training.phases) == PHASES
    assert [p.name for p in training.phases if p.deadline is None] == ["steady"]


def test_what_refuses_can_be_skipped_so_that_the_failure_can_be_seen() -> None:
    assert find_pipeline("finetuning").skippable == ("preflight", "memory_budget")
