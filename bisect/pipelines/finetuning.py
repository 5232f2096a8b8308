"""The pipeline of a fine-tuning: a memory budget, a model, LoRA, and the first steps of a Trainer.

The table is at the end; before it are steps 7 to 9, the model on its device, LoRA's adapters around
it and gradient checkpointing, and steps 11 to 13, the Trainer, the training phase by phase, and the
checkpoint that it leaves.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import TYPE_CHECKING, Any

from ..base.checkpoints import Phase
from ..base.words import format_bytes, format_count
from . import finetuning_plan, model_steps
from .budget_advice import estimate_training_time, format_training_time
from .finetuning_plan import memory_size, name_list
from .model_steps import asking_the_hub
from .shared_steps import add_max_memory, collate_rows, make_pipeline, row

if TYPE_CHECKING:
    from ..rank.walk import Context
    from .finetuning_plan import TrainingSetup


_MOST_NAMED = 3


def model(context: Context) -> Any:
    """Return the model with its weights, where the arguments want it."""
    wanted: TrainingSetup = context.products["configuration"]
    transformers = context.imports("transformers")
    options = _loading_options(context, wanted)
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
    for line in _format_devices(loaded):
        context.say(line)
    return loaded


def _loading_options(context: Context, wanted: TrainingSetup) -> dict[str, Any]:
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


def _format_devices(loaded: Any) -> list[str]:
    """Return where the weights are, and which have no data now because they are offloaded."""
    parameters = dict(loaded.named_parameters())
    there = [p for p in parameters.values() if not p.is_meta]
    devices = sorted({str(p.device) for p in there})
    held = sum(p.numel() * p.element_size() for p in there)
    lines = [
        f"Model {type(loaded).__name__} with {sum(p.numel() for p in parameters.values()):,} "
        f"parameters, {format_bytes(held)} on {', '.join(devices) or 'no device'}"
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
    wanted: TrainingSetup = context.products["configuration"]
    loaded, plan = context.products["model"], wanted.plan
    if not plan.lora_rank:
        context.say("No LoRA (--lora-rank 0): all weights are trained")
        return loaded
    peft = context.imports("peft")
    from .memory_budget import add_lora  # its own imports are done by now

    if plan.quantization != "off":
        context.about_to("peft.prepare_model_for_kbit_training")
        loaded = peft.prepare_model_for_kbit_training(
            loaded, use_gradient_checkpointing=plan.gradient_checkpointing
        )
    names = ", ".join(plan.lora_modules) or "all linear layers"
    context.about_to("peft.get_peft_model", f" of rank {plan.lora_rank} for {names}")
    made = add_lora(loaded, plan)
    trained, whole = made.get_nb_trainable_parameters()
    context.say(f"LoRA: {trained:,} of {whole:,} parameters are trained ({trained / whole:.2%})")
    return made


def gradient_checkpointing(context: Context) -> bool:
    """Switch it on, if it is asked for; return whether it is."""
    wanted: TrainingSetup = context.products["configuration"]
    if not wanted.plan.gradient_checkpointing:
        context.say("Gradient checkpointing is off: all activations stay in memory")
        return False
    made = context.products["lora"]
    context.about_to(f"transformers.{type(made).__name__}.gradient_checkpointing_enable")
    from .dry_run import enable_gradient_checkpointing

    enable_gradient_checkpointing(made, wanted.plan)
    return True


# transformers' names (OptimizerNames). Fused: unfused it takes on a GPU, for a moment, as much
# again as all that is trained.
OPTIMIZERS = {"adamw": "adamw_torch_fused", "adamw-8bit": "adamw_bnb_8bit", "sgd": "sgd"}


def output_dir(context: Context) -> str:
    """Return where the checkpoint goes, whether it exists or not."""
    return os.path.abspath(
        context.args.output_dir or os.path.join(context.run_dir, "logs", "checkpoint")
    )


def trainer(context: Context) -> Any:
    """Return transformers' Trainer; under a launcher that makes the process group."""
    wanted: TrainingSetup = context.products["configuration"]
    transformers = context.imports("transformers")
    context.imports("accelerate")
    context.imports("transformers.trainer")
    from .followed_trainer import FollowedTrainer  # its own imports are done by now

    options = training_options(wanted, context.args.max_steps, output_dir(context))
    context.about_to("transformers.TrainingArguments", ", which makes the process group")
    arguments = transformers.TrainingArguments(**options)
    arguments._n_gpu = min(1, arguments.n_gpu)  # one rank, one GPU: not DataParallel over them all
    context.about_to("transformers.Trainer")
    made = FollowedTrainer(
        context,
        model=context.products["lora"],
        args=arguments,
        train_dataset=context.products["data"],
        data_collator=collate_rows,
    )
    made.remove_callback(transformers.PrinterCallback)  # it prints a dict, and we a line
    kind = str(made.accelerator.distributed_type).rpartition(".")[2]
    context.say(f"Trainer made: {kind}, {made.accelerator.num_processes} ranks, {arguments.device}")
    if made.accelerator.num_processes != context.place.world_size:
        raise RuntimeError(
            f"the Trainer sees {made.accelerator.num_processes} ranks, and there are "
            f"{context.place.world_size}: {context.place.launcher} has not told it of the others"
        )
    return made


def training_options(wanted: TrainingSetup, steps: int, folder: str) -> dict[str, Any]:
    """Return the options of TrainingArguments."""
    plan = wanted.plan
    on_cpu = wanted.device.type == "cpu"
    mixed = plan.precision.autocast
    options = {
        "output_dir": folder,
        "max_steps": steps,
        "per_device_train_batch_size": plan.batch_size,
        "gradient_accumulation_steps": plan.accumulation,
        "optim": OPTIMIZERS[plan.optimizer],
        "fp16": mixed and plan.precision.computes == "float16",
        "bf16": mixed and plan.precision.computes == "bfloat16",
        "use_cpu": on_cpu,
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": not on_cpu,
        "ddp_find_unused_parameters": False,
    }
    if plan.ranks > 1 and on_cpu:
        options["ddp_backend"] = "gloo"
    return options


def training(context: Context) -> list[float]:
    """Train, announcing each phase as it begins; return the seconds of each step."""
    made = context.products["trainer"]
    context.phase("launch")
    context.about_to("transformers.Trainer.train")
    made.train()
    seconds: list[float] = made.followed.seconds
    context.say(f"Trained {format_count(len(seconds), 'step')}")
    if context.args.examples and context.place.rank == 0:
        plan = context.products["configuration"].plan
        time = estimate_training_time(
            seconds,
            examples=context.args.examples,
            epochs=context.args.epochs,
            batch=plan.effective_batch * plan.ranks,
        )
        if time is not None:
            context.say(f"The whole training, as measured here: {format_training_time(time)}")
    return seconds


def checkpoint(context: Context) -> str:
    """Write the trained weights (LoRA's alone, with LoRA), and return their folder."""
    folder = output_dir(context)
    context.about_to("transformers.Trainer.save_model", f" with {folder}")
    context.products["trainer"].save_model(folder)
    if context.place.rank == 0:
        files = {name: os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)}
        weights = {name: taken for name, taken in files.items() if name.endswith(".safetensors")}
        if not weights:
            raise RuntimeError(f"{folder} has no weights in it: {', '.join(sorted(files))}")
        sizes = ", ".join(
            f"{name} {format_bytes(taken)}" for name, taken in sorted(weights.items())
        )
        context.say(f"Checkpoint in {folder}: {sizes}")
    return folder


_TEXTS = (
    ("--model", "NAME_OR_PATH", "through AutoModelForCausalLM (a small one)"),
    ("--tokenizer", "NAME_OR_PATH", "through AutoTokenizer (the model's)"),
    ("--data", "FILE", "text to train on (a page that ships)"),
    ("--output-dir", "DIR", "for the checkpoint (logs/checkpoint, in the run folder)"),
    ("--offload-folder", "DIR", "for what --device-map puts on the disk (a temporary one)"),
)
_NUMBERS = (
    ("--max-steps", 3, "steps of the optimizer (3)"),
    (
        "--batch-size",
        8,
        "examples of each rank a step of the optimizer: micro batches are added up to it (8)",
    ),
    (
        "--examples",
        None,
        "examples of the training that is planned: its duration is computed from the steps "
        "measured",
    ),
    ("--epochs", 1, "passes over --examples (1)"),
)


def _add_finetuning_arguments(group: argparse._ActionsContainer) -> None:
    from ..base.argument_types import choice, count

    add = group.add_argument
    for flag, metavar, help in _TEXTS:
        add(flag, metavar=metavar, help=help)
    for flag, default, help in _NUMBERS:
        add(flag, metavar="N", type=count(flag, 1), default=default, help=help)
    add(
        "--optimizer",
        metavar="|".join(OPTIMIZERS),
        type=choice("--optimizer", tuple(OPTIMIZERS)),
        default="adamw",
        help="AdamW, AdamW with a state in 8 bits (bitsandbytes), or plain SGD (adamw)",
    )
    add(
        "--lora-modules",
        metavar="NAME,...",
        type=name_list,
        default=[],
        help="modules that get adapters (all linear layers)",
    )
    add_max_memory(group, "14GB")
    add(
        "--free-memory",
        metavar="SIZE",
        type=memory_size("--free-memory"),
        help="what the memory budget is held against (what is free on the device)",
    )


# Deadlines in seconds: half a minute for what is local, minutes for what downloads, loads or runs a
# large model without data (a search for what fits does that up to 24 times).
_PHASES = (
    Phase("launch", "trainer", 120),
    Phase("first_batch", "data", 120),
    Phase("first_forward", "fit", 300),
    Phase("first_backward", "fit", 300),
    Phase("first_step", "optimizer", 120),
    Phase("steady", "fit", None),
    Phase("teardown", "trainer", 120),
)


PIPELINE = make_pipeline(
    "finetuning",
    (
        row("arguments", "Args parsed", "arguments", 30, finetuning_plan.arguments),
        row("configuration", "Configuration read", "hub", 300, finetuning_plan.configuration),
        row("preflight", "Preflight passed", "model", 120, finetuning_plan.preflight,
            skippable=True),
        row("memory_budget", "Memory budget made", "memory", 600, finetuning_plan.memory_budget,
            skippable=True),
        row("tokenizer", "Tokenizer loaded", "hub", 300, model_steps.tokenizer),
        row("model", "Model on its device", "model", 900, model),
        row("lora", "LoRA ready", "lora", 120, lora),
        row("gradient_checkpointing", "Gradient checkpointing set", "model", 60,
            gradient_checkpointing),
        row("data", "Data ready", "data", 300, model_steps.data),
        row("trainer", "Trainer ready", "trainer", 180, trainer),
        row("training", "Training finished", "fit", 600, training, phases=_PHASES),
        row("checkpoint", "Checkpoint written", "checkpoint", 300, checkpoint),
    ),
    _add_finetuning_arguments,
    shows_itself="first_step",
    aliases=(("peft", "lora"),),
)  # fmt: skip
