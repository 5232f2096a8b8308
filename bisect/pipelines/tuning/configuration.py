"""Steps 2 and 3: what the arguments of a training may say, the model's config, and the plan of the
training that follows from them.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from ...base.words import format_count
from .. import model_steps
from ..budget.budget import TrainingPlan, find_precision
from ..model_steps import asking_the_hub, find_device
from ..shared_steps import as_path, check_exists, check_minimum, format_arguments

if TYPE_CHECKING:
    from ...rank.walk import Context


_UNITS = {"K": 1, "M": 2, "G": 3, "T": 4}


def name_list(value: str) -> tuple[str, ...]:
    """Return the names of a list with commas."""
    return tuple(name.strip() for name in value.split(",") if name.strip())


def memory_size(flag: str) -> Callable[[str], int]:
    """Return a reader of a size: GB and GiB both are 2**30 bytes."""

    def read(value: str) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT])I?B", value.upper())
        if match is None or not float(match[1]):
            raise UsageError(f"{flag} cannot be {value!r}: it is a size, as 24GiB or 800MiB")
        return int(float(match[1]) * 1024 ** _UNITS[match[2]])

    return read


def arguments(context: Context) -> argparse.Namespace:
    """Check what belongs together and what needs the file system; return the arguments."""
    args = context.args
    check_counts(args)
    check_exists("--data", args.data, context)
    check_exists("--model", as_path(args.model), context)
    args.tokenizer = args.tokenizer or args.model
    context.say("Arguments: " + format_arguments(args))
    return args


def check_counts(args: argparse.Namespace) -> None:
    """Raise UsageError for numbers that cannot go together."""
    check_minimum("--micro-batch", args.micro_batch, 1)
    check_minimum("--sequence-length", args.sequence_length, 2)
    if args.batch_size > args.micro_batch and args.batch_size % args.micro_batch:
        parts = [str(n) for n in range(1, args.batch_size + 1) if not args.batch_size % n]
        raise UsageError(
            f"--micro-batch {args.micro_batch} is no part of --batch-size {args.batch_size}: a "
            "step of the optimizer takes whole micro batches",
            f"Sizes that go into it: {', '.join(parts)}",
        )


@dataclass(frozen=True)
class TrainingSetup:
    """What is to be trained, and on what."""

    name: str  # of the model: a path, or a name on the hub
    config: Any
    plan: TrainingPlan
    device: Any  # a torch.device
    device_map: str
    max_memory: Mapping[int | str, str] = field(default_factory=dict)


def configuration(context: Context) -> TrainingSetup:
    """Return what is to be trained. Loads no weights."""
    args = context.args
    torch, transformers = context.imports("torch"), context.imports("transformers")
    name = args.model or _make_own_model(context, transformers, torch)
    with asking_the_hub("config", args.model, context):
        context.about_to("transformers.AutoConfig.from_pretrained", f" with {name}")
        config = transformers.AutoConfig.from_pretrained(name)
    plan = make_plan(args, context.place.world_size)
    wanted = TrainingSetup(
        name=name,
        config=config,
        plan=plan,
        device=find_device(context),
        device_map=args.device_map,
        max_memory=dict(args.max_memory),
    )
    what = f"LoRA of rank {plan.lora_rank}" if plan.lora_rank else "all weights"
    context.say(
        f"To be trained: {what} of {config.model_type} on {wanted.device} in "
        f"{plan.precision.name}, {plan.batch_size} x {plan.length} tokens at once, "
        f"{plan.accumulation} times a step: batch size {plan.effective_batch} on each of "
        f"{format_count(plan.ranks, 'rank')}"
    )
    if not args.model:
        context.not_exercised.append("the hub (no model by name)")
    if wanted.device.type == "cpu":
        context.not_exercised.append("a GPU")
    return wanted


def make_plan(args: argparse.Namespace, ranks: int) -> TrainingPlan:
    """Return the plan that the arguments describe; a micro batch is no larger than the batch."""
    at_once = min(args.micro_batch, args.batch_size)
    return TrainingPlan(
        precision=find_precision(args.precision),
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


def _make_own_model(context: Context, transformers: Any, torch: Any) -> str:
    folder = tempfile.mkdtemp(prefix="model-")
    context.about_to("transformers.PreTrainedModel.save_pretrained", f" of a small one to {folder}")
    hub = context.imports("huggingface_hub")
    return model_steps.write_small_model(folder, transformers, torch, hub)
