"""Steps 11 to 13: the Trainer, the training phase by phase, and the checkpoint that it leaves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..budget.training_time import time_line, training_time
from ..generating.words import counted, size
from .data_step import batch_of

if TYPE_CHECKING:
    from ...rank.context import Context
    from .configuration import Wanted

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
    wanted: Wanted = context.products["configuration"]
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
        data_collator=batch_of,
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


def training_options(wanted: Wanted, steps: int, folder: str) -> dict[str, Any]:
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
    context.say(f"Trained {counted(len(seconds), 'step')}")
    if context.args.examples and context.place.rank == 0:
        plan = context.products["configuration"].plan
        time = training_time(
            seconds,
            examples=context.args.examples,
            epochs=context.args.epochs,
            batch=plan.effective_batch * plan.ranks,
        )
        if time is not None:
            context.say(f"The whole training, as measured here: {time_line(time)}")
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
        told = ", ".join(f"{name} {size(taken)}" for name, taken in sorted(weights.items()))
        context.say(f"Checkpoint in {folder}: {told}")
    return folder
