"""What a training really holds in memory, on the CPU: every allocation and every free, counted.

torch's own profiler tells them, as its allocator sees them; gradients and optimizer state are
looked at while they are there. For benchmarks/memory_budget.py and the tests of the memory budget.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from hangbisect.pipelines.dry_run import enable_gradient_checkpointing
from hangbisect.pipelines.finetuning import training_options
from hangbisect.pipelines.finetuning_plan import TrainingSetup
from hangbisect.pipelines.memory_budget import TrainingPlan, add_lora
from hangbisect.pipelines.shared_steps import collate_rows

STEPS = 2  # of the optimizer: its state is there from the second one on


@dataclass(frozen=True)
class Measured:
    """Bytes. `peak` is of everything."""

    weights: int  # LoRA's among them
    gradients: int
    optimizer: int
    peak: int


class _AtStep(transformers.TrainerCallback):  # type: ignore[misc]  # unknown without transformers
    """Looks at gradients just before the optimizer's step, when all of them are there."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.gradients = 0

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        found = [p.grad for p in self._model.parameters() if p.grad is not None]
        self.gradients = max(self.gradients, _held(found))


def measured(config: Any, plan: TrainingPlan) -> Measured:
    """Return what two steps of a Trainer take on the CPU."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.to(getattr(torch, plan.weights_dtype))
    model.config.use_cache = False
    if plan.lora_rank:
        model = add_lora(model, plan)
    if plan.gradient_checkpointing:
        enable_gradient_checkpointing(model, plan)
    wanted = TrainingSetup("", config, plan, torch.device("cpu"), "none")
    row = [number % config.vocab_size for number in range(plan.length)]
    rows = [{"input_ids": row, "labels": row}] * (plan.effective_batch * STEPS)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = training_options(wanted, STEPS, folder)
        trainer = transformers.Trainer(
            model=model,
            args=transformers.TrainingArguments(**options),
            train_dataset=rows,
            data_collator=collate_rows,
        )
        trainer.remove_callback(transformers.PrinterCallback)
        at_step = _AtStep(model)
        trainer.add_callback(at_step)
        weights = _held([*model.parameters(), *model.buffers()])
        with torch.profiler.profile(profile_memory=True) as profile:
            trainer.train()
    states = [value for state in trainer.optimizer.state.values() for value in state.values()]
    return Measured(
        weights=_held(model.parameters()),
        gradients=at_step.gradients,
        optimizer=_held(one for one in states if isinstance(one, torch.Tensor)),
        peak=weights + _most_allocated(profile),
    )


def _held(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes behind tensors, those that share some counted once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def _most_allocated(profile: Any) -> int:
    """Return the most bytes that were allocated at once while `profile` ran."""
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most
