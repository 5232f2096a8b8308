"""Step 3: the model's config, and the plan of the training that follows from the arguments."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..budget.plan import TrainingPlan, precision
from ..generating import small_model
from ..generating.device import own_device
from ..generating.words import counted
from ..model_steps import asking_the_hub

if TYPE_CHECKING:
    from ...rank.context import Context


@dataclass(frozen=True)
class Wanted:
    """What is to be trained, and on what."""

    name: str  # of the model: a path, or a name on the hub
    config: Any
    plan: TrainingPlan
    device: Any  # a torch.device
    device_map: str
    max_memory: Mapping[int | str, str] = field(default_factory=dict)


def configuration(context: Context) -> Wanted:
    """Return what is to be trained. Loads no weights."""
    args = context.args
    torch, transformers = context.imports("torch"), context.imports("transformers")
    name = args.model or _small_model(context, transformers, torch)
    with asking_the_hub("config", args.model, context):
        context.about_to("transformers.AutoConfig.from_pretrained", f" with {name}")
        config = transformers.AutoConfig.from_pretrained(name)
    plan = plan_of(args, context.place.world_size)
    wanted = Wanted(
        name=name,
        config=config,
        plan=plan,
        device=own_device(context),
        device_map=args.device_map,
        max_memory=dict(args.max_memory),
    )
    what = f"LoRA of rank {plan.lora_rank}" if plan.lora_rank else "all weights"
    context.say(
        f"To be trained: {what} of {config.model_type} on {wanted.device} in "
        f"{plan.precision.name}, {plan.batch_size} x {plan.length} tokens at once, "
        f"{plan.accumulation} times a step: batch size {plan.effective_batch} on each of "
        f"{counted(plan.ranks, 'rank')}"
    )
    if not args.model:
        context.not_exercised.append("the hub (no model by name)")
    if wanted.device.type == "cpu":
        context.not_exercised.append("a GPU")
    return wanted


def plan_of(args: argparse.Namespace, ranks: int) -> TrainingPlan:
    """Return the plan that the arguments describe; a micro batch is no larger than the batch."""
    at_once = min(args.micro_batch, args.batch_size)
    return TrainingPlan(
        precision=precision(args.precision),
        batch_size=at_once,
        accumulation=args.batch_size // at_once,
        length=args.sequence_length,
        lora_rank=args.lora_rank,
        lora_modules=tuple(args.lora_modules),
        gradient_checkpointing=args.gradient_checkpointing == "on",
        optimizer=args.optimizer,
        quantization=args.quantization,
        ranks=ranks,
    )


def _small_model(context: Context, transformers: Any, torch: Any) -> str:
    folder = tempfile.mkdtemp(prefix="model-")
    context.about_to("transformers.PreTrainedModel.save_pretrained", f" of a small one to {folder}")
    hub = context.imports("huggingface_hub")
    return small_model.make(folder, transformers, torch, hub)
