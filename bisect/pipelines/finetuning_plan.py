"""Steps 2 to 5 of a fine-tuning, before anything is loaded: what the arguments may say, the model's
config, and the plan that follows from them; the refusal of combinations of settings that are known
not to work, each with the reason and the way out; and the memory budget.

One row of IMPOSSIBLE a combination: what is seen of it in the facts, or None. What the libraries do
is as measured with torch 2.13, transformers 5.23, accelerate 1.15 and peft 0.21.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from ..base.errors import UsageError, nearest
from ..base.lazy_dataclass import dataclass
from ..base.words import format_bytes, format_count
from . import model_steps
from .budget_advice import divide_over_gpus, find_nearest_fit, format_budget, format_fit
from .memory_budget import Budget, FreeMemory, TrainingPlan, find_precision, is_linear
from .model_steps import asking_the_hub, find_device
from .shared_steps import (
    Impossible,
    as_path,
    check_exists,
    check_minimum,
    find_missing,
    format_arguments,
    refuse_impossible,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..rank.walk import Context
    from .memory_budget import DeviceMap


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


@dataclass(frozen=True)
class TrainingFacts:
    """What is known of a training before anything is loaded."""

    plan: TrainingPlan
    device: str = "cpu"  # the kind: "cuda"
    device_map: str = "none"
    offloaded: tuple[str, ...] = ()  # modules whose weights will be on meta but for moments
    devices: int = 1  # that the model's layers are put on
    launched: bool = False  # by a launcher: accelerate takes that for distributed, be it one rank
    linear: tuple[str, ...] = ()  # names of all linear layers: "model.layers.0.self_attn.q_proj"
    longest: int | None = None  # tokens that the model has positions for, None: no limit known
    missing: frozenset[str] = field(default_factory=frozenset)  # libraries that are not installed


# ---- what is seen --------------------------------------------------------------------------------

_OFFLOAD = "--device-map auto, which offloads {} of the model's parts (the first: {})"


def _show_offload(facts: TrainingFacts) -> str | None:
    if not facts.offloaded:
        return None
    return _OFFLOAD.format(len(facts.offloaded), facts.offloaded[0])


def _offload_and(facts: TrainingFacts, other: str, both: bool) -> str | None:
    offload = _show_offload(facts)
    return f"{offload}, and {other}" if offload and both else None


def _offload_and_checkpointing(facts: TrainingFacts) -> str | None:
    return _offload_and(facts, "--gradient-checkpointing on", facts.plan.gradient_checkpointing)


def _offload_and_lora(facts: TrainingFacts) -> str | None:
    rank = facts.plan.lora_rank
    return _offload_and(facts, f"--lora-rank {rank}", rank > 0)


def _offload_and_optimizer(facts: TrainingFacts) -> str | None:
    optimizer = f"--optimizer {facts.plan.optimizer} over all weights (--lora-rank 0)"
    return _offload_and(facts, optimizer, not facts.plan.lora_rank)


def _map_and_ranks(facts: TrainingFacts) -> str | None:
    ranks = facts.plan.ranks
    if facts.device_map == "none" or facts.devices < 2 or not (ranks > 1 or facts.launched):
        return None
    several = f"{ranks} ranks" if ranks > 1 else "a launcher"
    return f"--device-map auto, which divides the model, and {several}"


def _half_without_scaler(facts: TrainingFacts) -> str | None:
    if facts.plan.precision.computes != "float16" or facts.plan.precision.scaler:
        return None
    return f"--precision {facts.plan.precision.name}, and no scaler of the loss"


def _scaler_on_cpu(facts: TrainingFacts) -> str | None:
    if not facts.plan.precision.scaler or facts.device != "cpu":
        return None
    return f"--precision {facts.plan.precision.name}, and a training on the CPU"


def _quantized_and_full(facts: TrainingFacts) -> str | None:
    if facts.plan.quantization == "off" or facts.plan.lora_rank:
        return None
    return f"--quantization {facts.plan.quantization}, and --lora-rank 0: all weights are trained"


def _library_missing(facts: TrainingFacts) -> str | None:
    if "bitsandbytes" not in facts.missing:
        return None
    if facts.plan.quantization != "off":
        return f"--quantization {facts.plan.quantization}, and no bitsandbytes"
    eight_bit = facts.plan.optimizer == "adamw-8bit"
    return "--optimizer adamw-8bit, and no bitsandbytes" if eight_bit else None


def _too_long(facts: TrainingFacts) -> str | None:
    if facts.longest is None or facts.plan.length <= facts.longest:
        return None
    return f"--sequence-length {facts.plan.length}, and a model with {facts.longest} positions"


def _lora_matches_nothing(facts: TrainingFacts) -> str | None:
    if not facts.plan.lora_rank or not facts.linear:
        return None
    unknown = [name for name in facts.plan.lora_modules if not match_modules(name, facts.linear)]
    if not unknown:
        return None
    known = sorted({name.rpartition(".")[2] for name in facts.linear})
    named = "; ".join(f"{name!r}{nearest(name, known)}" for name in unknown)
    return f"--lora-modules names {named}, and the model's linear layers: {', '.join(known)}"


def match_modules(wanted: str, names: Iterable[str]) -> list[str]:
    """Return the modules that peft takes a name of `target_modules` for."""
    return [name for name in names if name == wanted or name.endswith(f".{wanted}")]


# ---- the table -----------------------------------------------------------------------------------

_FITS_OTHERWISE = (
    "--device-map none; if it does not fit then, as the memory budget says: a smaller "
    "--micro-batch, --quantization 4bit, or DeepSpeed ZeRO stage 3 in place of the offload"
)

IMPOSSIBLE: tuple[Impossible[TrainingFacts], ...] = (
    Impossible(
        id="offload-and-checkpointing",
        seen=_offload_and_checkpointing,
        why="the backward pass computes each layer again, and weights that are offloaded are on "
        "the device meta but for the moments of that: what is to be trained there gets no "
        "gradient, or backward ends in 'expected device meta but got cuda:0'",
        way_out=_FITS_OTHERWISE,
    ),
    Impossible(
        id="offload-and-lora",
        seen=_offload_and_lora,
        why="the adapters of an offloaded layer are on the device meta whenever it does not "
        "compute: backward ends in 'expected device meta but got cuda:0'",
        way_out=_FITS_OTHERWISE,
    ),
    Impossible(
        id="offload-and-optimizer",
        seen=_offload_and_optimizer,
        why="weights that are offloaded are on the device meta whenever the optimizer steps: they "
        "get no gradient and are never trained, and nothing says so",
        way_out=_FITS_OTHERWISE,
    ),
    Impossible(
        id="device-map-and-ranks",
        seen=_map_and_ranks,
        why="a model is either divided over devices or copied to each rank: accelerate refuses",
        way_out="--device-map none, or no launcher: python -m bisect",
    ),
    Impossible(
        id="half-without-scaler",
        seen=_half_without_scaler,
        why="gradients below 6e-8 are 0 in float16, so that training stalls or ends in NaN",
        way_out="--precision bf16, or fp16-mixed, which scales the loss",
    ),
    Impossible(
        id="scaler-on-cpu",
        seen=_scaler_on_cpu,
        why="accelerate mixes float16 on a GPU alone",
        way_out="--precision bf16-mixed",
    ),
    Impossible(
        id="quantized-and-full",
        seen=_quantized_and_full,
        why="quantized weights are whole numbers and have no gradient: transformers refuses",
        way_out="--lora-rank 8, which trains adapters beside them, or --quantization off",
    ),
    Impossible(
        id="library-missing",
        seen=_library_missing,
        why="weights and optimizer states of 8 and 4 bits are that library's",
        way_out="pip install bitsandbytes, or --quantization off --optimizer adamw",
    ),
    Impossible(
        id="too-long",
        seen=_too_long,
        why="a token beyond the last position has no embedding",
        way_out="a shorter --sequence-length",
    ),
    Impossible(
        id="lora-matches-nothing",
        seen=_lora_matches_nothing,
        why="peft looks for modules whose name ends so",
        way_out="names of that list, or none: all linear layers",
    ),
)


def predict_device_map(context: Context, wanted: TrainingSetup) -> DeviceMap | None:
    """Return where the model's layers will be put, None without a device map."""
    if wanted.device_map == "none":
        return None
    context.imports("accelerate")
    from .dry_run import build_outline
    from .memory_budget import infer_device_map

    context.about_to("accelerate.infer_auto_device_map")
    return infer_device_map(
        build_outline(wanted.config, wanted.plan.weights_dtype), wanted.max_memory
    )


_LIBRARIES = ("bitsandbytes",)


def preflight(context: Context) -> TrainingFacts:
    """Return what is known. Raises UsageError for combinations that cannot work."""
    wanted: TrainingSetup = context.products["configuration"]
    placed = predict_device_map(context, wanted)
    facts = TrainingFacts(
        plan=wanted.plan,
        device=wanted.device.type,
        device_map=wanted.device_map,
        offloaded=placed.offloaded if placed else (),
        devices=len(set(placed.modules.values())) if placed else 1,
        launched="LOCAL_RANK" in os.environ,
        linear=_linear_layers(context, wanted),
        longest=getattr(wanted.config, "max_position_embeddings", None),
        missing=find_missing(_LIBRARIES),
    )
    return refuse_impossible(context, facts, IMPOSSIBLE)


def _linear_layers(context: Context, wanted: TrainingSetup) -> tuple[str, ...]:
    """Return the names of the model's linear layers, where LoRA is to find some by name."""
    if not wanted.plan.lora_modules:
        return ()
    from .dry_run import build_outline

    model: Any = build_outline(wanted.config, wanted.plan.weights_dtype)
    return tuple(name for name, part in model.named_modules() if is_linear(part))


def memory_budget(context: Context) -> Budget | None:
    """Return the budget after its table; None where the model cannot be run without data, and on
    every rank but the first of its node, which makes it for all of them.

    Raises UsageError if weights, gradients and optimizer state alone do not fit: starting it anyway
    might take the machine with it. `--skip memory_budget` goes on.
    """
    wanted: TrainingSetup = context.products["configuration"]
    context.imports("psutil")
    free = _find_free_memory(context, wanted)
    if not context.is_first:
        context.say(f"Free: {format_bytes(free.free)} of {format_bytes(free.total)}, {free.where}")
    with context.once_a_node("memory budget") as mine:
        return _make_budget(context, wanted, free) if mine else None


def _make_budget(context: Context, wanted: TrainingSetup, free: FreeMemory) -> Budget | None:
    if wanted.plan.lora_rank:
        context.imports("peft")
    context.about_to("torch._subclasses.fake_tensor.FakeTensorMode", ", for a step without data")
    from .dry_run import add_other_activations, estimate_budget

    on_gpu = wanted.device.type == "cuda"

    def estimate(plan: TrainingPlan) -> Budget:
        return estimate_budget(wanted.config, plan, free, on_gpu)

    try:
        budget = estimate(wanted.plan)
        budget = add_other_activations(wanted.config, budget, on_gpu)
        placed = predict_device_map(context, wanted)
    except Exception as error:  # a model's own code may look at values, which fake tensors lack
        lines = str(error).strip().splitlines() or [""]
        context.say(f"No memory budget: {type(error).__name__} without data: {lines[0][:200]}")
        return None
    if placed is not None:
        budget = replace(budget, held=replace(budget.held, placed=placed.sizes))
    _say_budget(context, budget, estimate)
    return budget


def _say_budget(
    context: Context, budget: Budget, estimate: Callable[[TrainingPlan], Budget]
) -> None:
    for line in format_budget(budget):
        context.say(line)
    nearest = None if budget.fits else find_nearest_fit(budget.plan, estimate)
    lines = format_fit(budget, nearest, tried=not budget.fits)
    lines += _advise_several_gpus(context, budget)
    if budget.is_hopeless:
        ways = [*lines[1:], "To see it fail all the same: --skip memory_budget"]
        raise UsageError(lines[0], "\n".join(ways))
    for line in lines:
        context.say(line)


def _advise_several_gpus(context: Context, budget: Budget) -> list[str]:
    """Return how a model that does not fit can be divided, where one rank sees several GPUs."""
    wanted: TrainingSetup = context.products["configuration"]
    torch = context.imports("torch")
    several = wanted.device.type == "cuda" and torch.cuda.device_count() > 1
    if budget.fits or budget.plan.ranks > 1 or not several or wanted.device_map != "none":
        return []
    from .memory_budget import measure_free_gpus

    limits = divide_over_gpus(budget, [free for free, _ in measure_free_gpus()])
    if limits is None:
        return []
    flags = " ".join(f"--max-memory {limit}" for limit in limits)
    return [f"Or divided over {len(limits)} GPUs, which compute in turn: --device-map auto {flags}"]


def _find_free_memory(context: Context, wanted: TrainingSetup) -> FreeMemory:
    from .memory_budget import measure_free_memory

    if context.args.free_memory:
        free: int = context.args.free_memory
        return FreeMemory("as --free-memory says", free, free)
    several = wanted.device_map != "none"
    return measure_free_memory(wanted.device, context.place.local_world_size, divided=several)
