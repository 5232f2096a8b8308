"""LoRA's adapters, as the budget counts them and the pipeline makes them."""

from __future__ import annotations

from typing import Any

from .plan import TrainingPlan

ALL_LINEAR = "all-linear"  # peft's word for every linear layer but the output's


def lora_config(plan: TrainingPlan) -> Any:
    """Return peft's config of the plan's adapters."""
    import peft

    return peft.LoraConfig(
        r=plan.lora_rank,
        lora_alpha=2 * plan.lora_rank,
        target_modules=list(plan.lora_modules) or ALL_LINEAR,
        task_type="CAUSAL_LM",
    )


def with_lora(model: Any, plan: TrainingPlan) -> Any:
    """Return the model with adapters around its layers; its own weights are trained no more.

    Raises ValueError (peft's) where no module has one of the names.
    """
    import peft

    return peft.get_peft_model(model, lora_config(plan))
