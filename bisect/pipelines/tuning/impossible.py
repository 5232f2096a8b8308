"""Combinations of settings that are known not to work, each with the reason and the way out.

One row a combination: what is seen of it in the facts, or None. What the libraries do is as
measured with torch 2.13, transformers 5.23, accelerate 1.15 and peft 0.21.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...nearest import nearest
from ..budget.plan import TrainingPlan
from ..impossible import Impossible


@dataclass(frozen=True)
class Settings:
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


def _offload(facts: Settings) -> str | None:
    if not facts.offloaded:
        return None
    return _OFFLOAD.format(len(facts.offloaded), facts.offloaded[0])


def _offload_and(facts: Settings, other: str, both: bool) -> str | None:
    offload = _offload(facts)
    return f"{offload}, and {other}" if offload and both else None


def _offload_and_checkpointing(facts: Settings) -> str | None:
    return _offload_and(facts, "--gradient-checkpointing on", facts.plan.gradient_checkpointing)


def _offload_and_lora(facts: Settings) -> str | None:
    rank = facts.plan.lora_rank
    return _offload_and(facts, f"--lora-rank {rank}", rank > 0)


def _offload_and_optimizer(facts: Settings) -> str | None:
    told = f"--optimizer {facts.plan.optimizer} over all weights (--lora-rank 0)"
    return _offload_and(facts, told, not facts.plan.lora_rank)


def _map_and_ranks(facts: Settings) -> str | None:
    ranks = facts.plan.ranks
    if facts.device_map == "none" or facts.devices < 2 or not (ranks > 1 or facts.launched):
        return None
    several = f"{ranks} ranks" if ranks > 1 else "a launcher"
    return f"--device-map auto, which divides the model, and {several}"


def _half_without_scaler(facts: Settings) -> str | None:
    if facts.plan.precision.computes != "float16" or facts.plan.precision.scaler:
        return None
    return f"--precision {facts.plan.precision.name}, and no scaler of the loss"


def _scaler_on_cpu(facts: Settings) -> str | None:
    if not facts.plan.precision.scaler or facts.device != "cpu":
        return None
    return f"--precision {facts.plan.precision.name}, and a training on the CPU"


def _quantized_and_full(facts: Settings) -> str | None:
    if facts.plan.quantization == "off" or facts.plan.lora_rank:
        return None
    return f"--quantization {facts.plan.quantization}, and --lora-rank 0: all weights are trained"


def _library_missing(facts: Settings) -> str | None:
    if "bitsandbytes" not in facts.missing:
        return None
    if facts.plan.quantization != "off":
        return f"--quantization {facts.plan.quantization}, and no bitsandbytes"
    return "--optimizer adamw-8bit, and no bitsandbytes" if _eight_bit(facts) else None


def _eight_bit(facts: Settings) -> bool:
    return facts.plan.optimizer == "adamw-8bit"


def _too_long(facts: Settings) -> str | None:
    if facts.longest is None or facts.plan.length <= facts.longest:
        return None
    return f"--sequence-length {facts.plan.length}, and a model with {facts.longest} positions"


def _lora_matches_nothing(facts: Settings) -> str | None:
    if not facts.plan.lora_rank or not facts.linear:
        return None
    unknown = [name for name in facts.plan.lora_modules if not matching(name, facts.linear)]
    if not unknown:
        return None
    known = sorted({name.rpartition(".")[2] for name in facts.linear})
    named = "; ".join(f"{name!r}{nearest(name, known)}" for name in unknown)
    return f"--lora-modules names {named}, and the model's linear layers: {', '.join(known)}"


def matching(wanted: str, names: Iterable[str]) -> list[str]:
    """Return the modules that peft takes a name of `target_modules` for."""
    return [name for name in names if name == wanted or name.endswith(f".{wanted}")]


# ---- the table -----------------------------------------------------------------------------------

_FITS_OTHERWISE = (
    "--device-map none; if it does not fit then, as the memory budget says: a smaller "
    "--micro-batch, --quantization 4bit, or DeepSpeed ZeRO stage 3 in place of the offload"
)

IMPOSSIBLE: tuple[Impossible[Settings], ...] = (
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
