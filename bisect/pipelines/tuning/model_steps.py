"""Steps 7 to 9: the model on its device, LoRA's adapters around it, gradient checkpointing."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

from ..generating.words import size
from ..model_steps import asking_the_hub

if TYPE_CHECKING:
    from ...rank.context import Context
    from .configuration import Wanted

_MOST_NAMED = 3


def model(context: Context) -> Any:
    """Return the model with its weights, where the arguments want it."""
    wanted: Wanted = context.products["configuration"]
    transformers = context.imports("transformers")
    options = _options(context, wanted)
    words = "".join(f", {name}={value}" for name, value in options.items())
    with asking_the_hub("model", context.args.model, context):
        context.about_to(
            "transformers.AutoModelForCausalLM.from_pretrained", f" with {wanted.name}{words}"
        )
        loaded = transformers.AutoModelForCausalLM.from_pretrained(wanted.name, **options)
    loaded.config.use_cache = False  # of no use in training, and it keeps what it computes
    if "device_map" not in options:
        context.about_to("torch.nn.Module.to", f" with {wanted.device}")
        loaded.to(wanted.device)
    for line in _placed_lines(loaded):
        context.say(line)
    return loaded


def _options(context: Context, wanted: Wanted) -> dict[str, Any]:
    torch, transformers = context.imports("torch"), context.imports("transformers")
    plan = wanted.plan
    options: dict[str, Any] = {"dtype": getattr(torch, plan.weights_dtype)}
    if wanted.device_map != "none":
        options["device_map"] = wanted.device_map
        options["offload_folder"] = context.args.offload_folder or tempfile.mkdtemp(
            prefix="offloaded-"
        )
        if wanted.max_memory:
            options["max_memory"] = dict(wanted.max_memory)
    elif plan.quantization != "off":
        options["device_map"] = {"": str(wanted.device)}
    if plan.quantization == "8bit":
        options["quantization_config"] = transformers.BitsAndBytesConfig(load_in_8bit=True)
    elif plan.quantization == "4bit":
        options["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=getattr(torch, plan.precision.computes),
        )
    return options


def _placed_lines(loaded: Any) -> list[str]:
    """Return where the weights are, and which have no data now because they are offloaded."""
    parameters = dict(loaded.named_parameters())
    there = [p for p in parameters.values() if not p.is_meta]
    devices = sorted({str(p.device) for p in there})
    held = sum(p.numel() * p.element_size() for p in there)
    lines = [
        f"Model {type(loaded).__name__} with {sum(p.numel() for p in parameters.values()):,} "
        f"parameters, {size(held)} on {', '.join(devices) or 'no device'}"
    ]
    meta = [name for name, p in parameters.items() if p.is_meta]
    if meta:
        named = ", ".join(meta[:_MOST_NAMED]) + (", ..." if len(meta) > _MOST_NAMED else "")
        lines.append(
            f"{len(meta)} parameters are on the device meta, as offload has it ({named}): they "
            "cannot be trained"
        )
    return lines


def lora(context: Context) -> Any:
    """Return the model to train: with adapters, or as it is with --lora-rank 0."""
    wanted: Wanted = context.products["configuration"]
    loaded, plan = context.products["model"], wanted.plan
    if not plan.lora_rank:
        context.say("No LoRA (--lora-rank 0): all weights are trained")
        return loaded
    peft = context.imports("peft")
    from ..budget.adapters import with_lora  # its own imports are done by now

    if plan.quantization != "off":
        context.about_to("peft.prepare_model_for_kbit_training")
        loaded = peft.prepare_model_for_kbit_training(
            loaded, use_gradient_checkpointing=plan.gradient_checkpointing
        )
    names = ", ".join(plan.lora_modules) or "all linear layers"
    context.about_to("peft.get_peft_model", f" of rank {plan.lora_rank} for {names}")
    made = with_lora(loaded, plan)
    trained, whole = made.get_nb_trainable_parameters()
    context.say(f"LoRA: {trained:,} of {whole:,} parameters are trained ({trained / whole:.2%})")
    return made


def gradient_checkpointing(context: Context) -> bool:
    """Switch it on, if it is asked for; return whether it is."""
    wanted: Wanted = context.products["configuration"]
    if not wanted.plan.gradient_checkpointing:
        context.say("Gradient checkpointing is off: all activations stay in memory")
        return False
    made = context.products["lora"]
    context.about_to(f"transformers.{type(made).__name__}.gradient_checkpointing_enable")
    from ..budget.dry_run import checkpoint_gradients

    checkpoint_gradients(made, wanted.plan)
    return True
