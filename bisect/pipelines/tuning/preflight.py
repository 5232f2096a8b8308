"""Steps 4 and 5, before anything is loaded: refuse combinations of settings that are known not to
work, each with the reason and the way out, and make the memory budget.

One row of IMPOSSIBLE a combination: what is seen of it in the facts, or None. What the libraries
do is as measured with torch 2.13, transformers 5.23, accelerate 1.15 and peft 0.21.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError, nearest
from ...base.words import format_bytes
from ..budget.advice import divide_over_gpus, find_nearest_fit, format_budget, format_fit
from ..budget.budget import Budget, FreeMemory, TrainingPlan, is_linear
from ..shared_steps import Impossible, find_missing, refuse_impossible

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...rank.walk import Context
    from ..budget.budget import DeviceMap
    from .configuration import TrainingSetup


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
    told = f"--optimizer {facts.plan.optimizer} over all weights (--lora-rank 0)"
    return _offload_and(facts, told, not facts.plan.lora_rank)


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
    return "--optimizer adamw-8bit, and no bitsandbytes" if _is_eight_bit(facts) else None


def _is_eight_bit(facts: TrainingFacts) -> bool:
    return facts.plan.optimizer == "adamw-8bit"


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
    from ..budget.budget import infer_device_map
    from ..budget.dry_run import build_outline

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
    from ..budget.dry_run import build_outline

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
    from ..budget.dry_run import add_other_activations, estimate_budget

    on_gpu = wanted.device.type == "cuda"

    def estimate(plan: TrainingPlan) -> Budget:
        return estimate_budget(wanted.config, plan, free, on_gpu)

    try:
        budget = estimate(wanted.plan)
        budget = add_other_activations(wanted.config, budget, on_gpu)
        placed = predict_device_map(context, wanted)
    except Exception as error:  # a model's own code may look at values, which fake tensors lack
        told = str(error).strip().splitlines() or [""]
        context.say(f"No memory budget: {type(error).__name__} without data: {told[0][:200]}")
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
    from ..budget.budget import measure_free_gpus

    limits = divide_over_gpus(budget, [free for free, _ in measure_free_gpus()])
    if limits is None:
        return []
    told = " ".join(f"--max-memory {limit}" for limit in limits)
    return [f"Or divided over {len(limits)} GPUs, which compute in turn: --device-map auto {told}"]


def _find_free_memory(context: Context, wanted: TrainingSetup) -> FreeMemory:
    from ..budget.budget import measure_free_memory

    if context.args.free_memory:
        told: int = context.args.free_memory
        return FreeMemory("as --free-memory says", told, told)
    several = wanted.device_map != "none"
    return measure_free_memory(wanted.device, context.place.local_world_size, divided=several)
