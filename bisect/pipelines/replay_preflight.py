"""Steps 2, 4 and 5, before a module is built or compiled for minutes: what the arguments of a
replay may say, what is known not to work, each with the reason and the way out, and the memory
that the module will take.

What the libraries do is as seen in torch 2.13, transformers 5.23 and deepspeed 0.19.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..base.errors import UsageError
from ..base.lazy_dataclass import dataclass
from ..base.words import format_bytes
from ..captures import capture_file
from ..toggles.toggle import AS_SET
from .generation_plan import saved_dtype
from .memory_budget import FreeMemory
from .model_steps import asking_the_hub, find_device
from .shared_steps import (
    Impossible,
    as_path,
    check_exists,
    find_missing,
    format_arguments,
    hide_gpus,
    refuse_impossible,
)

if TYPE_CHECKING:
    from ..rank.walk import Context
    from .replay_inputs import ChosenInputs


_CHOOSING_ARGUMENTS = ("captures", "captured", "rank", "max_inputs")


def arguments(context: Context) -> argparse.Namespace:
    """Check what belongs together and what needs the file system; return the arguments."""
    args = context.args
    check_contradictions(args, context.place.world_size)
    for file in args.input_file:
        check_exists("--input-file", file, context)
    for flag in ("captures", "weights", "outputs"):
        check_exists(f"--{flag}", getattr(args, flag), context)
    check_path_kinds(args)
    check_exists("--model", as_path(args.model), context)
    hide_gpus(args.accelerator)
    context.say("Arguments: " + format_arguments(args))
    return args


def check_contradictions(args: argparse.Namespace, ranks: int) -> None:
    """Raise UsageError for arguments that contradict one another."""
    chosen = [name for name in _CHOOSING_ARGUMENTS if getattr(args, name) is not None]
    if args.input_file and chosen:
        flag = f"--{chosen[0].replace('_', '-')}"
        raise UsageError(
            f"--input-file names the captures, and {flag} chooses among those of a folder",
            "Leave one of them out.",
        )
    if args.model and "module" in args.use:
        raise UsageError(
            f"--model and --use module={args.use['module']} both say what the module is",
            "Leave one of them out; the function can read given.args.weights.",
        )
    if args.keep_going and ranks > 1:
        raise UsageError(
            f"--keep-going is for one rank, and there are {ranks}: after a failure the others wait "
            "for collectives that this rank no longer joins",
            "Leave it out, or start one rank: python -m bisect --pipeline replay",
        )
    if args.outputs and args.save_outputs and _is_same_path(args.outputs, args.save_outputs):
        raise UsageError(
            f"--outputs and --save-outputs both name {args.outputs}: what is compared with would "
            "be overwritten",
            "Name another folder.",
        )
    if args.save_outputs and any(
        _is_same_path(one, args.save_outputs) for one in _find_capture_folders(args)
    ):
        raise UsageError(
            f"--save-outputs names {args.save_outputs}, where the captures are: the outputs that "
            "were captured would be overwritten",
            "Name another folder.",
        )


def check_path_kinds(args: argparse.Namespace) -> None:
    """Raise UsageError for a file in place of a folder, the reverse, and a folder not writable."""
    for file in args.input_file:
        if os.path.isdir(file):
            raise UsageError(
                f"--input-file names {file!r}, which is a folder",
                f"All that was captured in it: --captures {file}",
            )
    for flag, instead in (
        ("captures", "This one capture alone: --input-file {}"),
        ("outputs", "It takes the folder of an earlier --save-outputs."),
    ):
        path = getattr(args, flag)
        if path is not None and not os.path.isdir(path):
            raise UsageError(f"--{flag} names {path!r}, which is no folder", instead.format(path))
    for flag in ("save_module", "save_outputs"):
        path = getattr(args, flag)
        if path is not None and not _can_be_written(path):
            raise UsageError(
                f"--{flag.replace('_', '-')} names {path!r}, and no file can be written there",
                "Name a folder of yours; it is made if it is not there.",
            )


def _can_be_written(folder: str) -> bool:
    there = os.path.abspath(folder)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    return os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)


def _find_capture_folders(args: argparse.Namespace) -> list[str]:
    if args.input_file:
        return [os.path.dirname(os.path.abspath(file)) for file in args.input_file]
    return [capture_file.find_folder(args.captures or "")]


def _is_same_path(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


@dataclass(frozen=True)
class ReplayFacts:
    """What is known before anything is built."""

    compile: str = "off"
    attention: str | None = None
    packing: str = AS_SET
    zero: str = "off"
    precision: str = AS_SET
    device: str = "cpu"  # the kind: "cuda"
    packed: bool = False  # the captured inputs are
    of_transformers: bool = False  # the module is built by us
    missing: frozenset[str] = field(default_factory=frozenset)  # libraries that are not installed


def _compiled_flash_packed(facts: ReplayFacts) -> str | None:
    packed = facts.packing == "on" or (facts.packing == AS_SET and facts.packed)
    if facts.compile == "off" or facts.attention != "flash" or not packed:
        return None
    rows = "--packing on" if facts.packing == "on" else "inputs that were captured packed"
    return f"--compile {facts.compile}, --attention flash and {rows}"


def _deepcompile_without_zero(facts: ReplayFacts) -> str | None:
    if facts.compile != "deepcompile" or facts.zero in ("1", "2", "3"):
        return None
    return f"--compile deepcompile and --zero {facts.zero}"


def _deepcompile_without_gpu(facts: ReplayFacts) -> str | None:
    if facts.compile != "deepcompile" or facts.device == "cuda":
        return None
    return f"--compile deepcompile and a replay on the {facts.device.upper()}"


def _flash_without_library(facts: ReplayFacts) -> str | None:
    wanted = facts.attention == "flash" and facts.of_transformers
    if not wanted or "flash_attn" not in facts.missing:
        return None
    return "--attention flash for a model of transformers', and no flash_attn"


def _flash_on_full(facts: ReplayFacts) -> str | None:
    on_gpu = facts.attention == "flash" and facts.device == "cuda"
    full = facts.precision == "fp32"
    return "--attention flash and --precision fp32" if on_gpu and full else None


def _zero_without_library(facts: ReplayFacts) -> str | None:
    if facts.zero == "off" or "deepspeed" not in facts.missing:
        return None
    return f"--zero {facts.zero}, and no deepspeed"


IMPOSSIBLE: tuple[Impossible[ReplayFacts], ...] = (
    Impossible(
        id="compiled-flash-packed",
        seen=_compiled_flash_packed,
        why="flash attention takes packed samples through flash_attn_varlen_func, which wants the "
        "length of the longest as a number; while torch.compile traces, that is a FakeTensor "
        "without a value, and after minutes it ends in \"Expected a value of type 'int' for "
        "argument 'max_seqlen_q' but instead found type 'FakeTensor'\"",
        way_out="--packing off (flash_attn_func, for rows of one length), or --attention sdpa",
    ),
    Impossible(
        id="deepcompile-without-zero",
        seen=_deepcompile_without_zero,
        why="DeepCompile is DeepSpeed's, for ZeRO 1, 2 and 3",
        way_out="--zero 1, or --compile inductor",
    ),
    Impossible(
        id="deepcompile-without-gpu",
        seen=_deepcompile_without_gpu,
        why="DeepCompile's operators are built for GPUs alone",
        way_out="--compile inductor",
    ),
    Impossible(
        id="flash-without-library",
        seen=_flash_without_library,
        why="transformers takes flash attention from there",
        way_out="pip install flash-attn, or --attention sdpa",
    ),
    Impossible(
        id="flash-in-full-precision",
        seen=_flash_on_full,
        why="flash attention computes in bfloat16 and float16 alone",
        way_out="--precision bf16, or --attention sdpa",
    ),
    Impossible(
        id="zero-without-library",
        seen=_zero_without_library,
        why="ZeRO is DeepSpeed's",
        way_out="pip install deepspeed, or --zero off",
    ),
)


_LIBRARIES = ("deepspeed", "flash_attn")


def preflight(context: Context) -> ReplayFacts:
    """Return what is known. Raises UsageError for combinations that cannot work."""
    args = context.args
    chosen: ChosenInputs = context.products["inputs"]
    facts = ReplayFacts(
        compile=args.compile,
        attention=args.attention,
        packing=args.packing,
        zero=args.zero,
        precision=args.precision,
        device=find_device(context).type,
        packed=chosen.is_packed,
        of_transformers="module" not in args.use,
        missing=find_missing(_LIBRARIES),
    )
    return refuse_impossible(context, facts, IMPOSSIBLE)


_FLOAT32_BYTES = 4  # bytes of a float32


@dataclass(frozen=True)
class ReplayMode:
    """What a replay does with a module."""

    backward: bool = False
    zero: str = "off"
    precision: str = "as-set"
    ranks: int = 1


@dataclass(frozen=True)
class ModuleMemory:
    """Bytes on one rank that are sure; activations, known after the first forward, come on top."""

    weights: int
    gradients: int = 0
    copies: int = 0  # ZeRO's, in float32
    inputs: int = 0  # of the largest call

    @property
    def needed(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.copies + self.inputs


def estimate_memory(
    parameters: Iterable[tuple[int, int, bool]], wanted: ReplayMode, inputs: int
) -> ModuleMemory:
    """Return what a module takes: of each parameter (number of values, bytes of each, whether it is
    trained).

    ZeRO divides the float32 copies from stage 1 on, gradients from 2 on, weights in 3 (DeepSpeed's
    documentation of ZeRO); whole in the module until it is divided.
    """
    set_to = {"bf16": 2, "fp32": _FLOAT32_BYTES}.get(wanted.precision)
    weights = gradients = trained = 0
    half = False
    for values, each, is_trained in parameters:
        each = set_to or each
        weights += values * each
        half = half or each < _FLOAT32_BYTES
        if is_trained:
            gradients += values * each
            trained += values
    stage = int(wanted.zero) if wanted.zero.isdigit() else 0
    copies = trained * _FLOAT32_BYTES if wanted.zero != "off" and half else 0
    return ModuleMemory(
        weights=weights // (wanted.ranks if stage == 3 else 1),
        gradients=(gradients // (wanted.ranks if stage >= 2 else 1)) if wanted.backward else 0,
        copies=copies // (wanted.ranks if stage >= 1 else 1),
        inputs=inputs,
    )


def format_memory(memory: ModuleMemory, free: FreeMemory) -> str:
    """Return it in words, against what is free."""
    parts = {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "copies in float32": memory.copies,
        "the largest input": memory.inputs,
    }
    text = ", ".join(f"{name} {format_bytes(number)}" for name, number in parts.items() if number)
    left = free.free - memory.needed
    return (
        f"Memory: {text or 'nothing'}, and activations; {format_bytes(free.free)} of "
        f"{format_bytes(free.total)} are free, {free.where}: {format_bytes(abs(left))} "
        f"{'left' if left >= 0 else 'missing'}"
    )


_WAYS_OUT = """--precision bf16, no --backward, ZeRO over more ranks (--zero 3)
To see it fail all the same: --skip memory_budget"""


def memory_budget(context: Context) -> ModuleMemory | None:
    """Return what is known to be needed; None of a module of the user's own, which is looked at
    once it is built. Raises UsageError if it is not there.
    """
    if "module" in context.args.use:
        context.say("The memory of a module of yours is looked at once it is built")
        return None
    transformers = context.imports("transformers")
    name = context.args.model
    if name:
        with asking_the_hub("config", name, context):
            context.about_to("transformers.AutoConfig.from_pretrained", f" with {name}")
            config = transformers.AutoConfig.from_pretrained(name)
    else:
        from . import model_steps

        config = model_steps.load_small_config(transformers)
    context.about_to("transformers.AutoModelForCausalLM.from_config", " on the device meta")
    from .dry_run import build_outline

    return check_memory(context, build_outline(config, saved_dtype(config)))


def check_memory(context: Context, module: Any) -> ModuleMemory:
    """Return what `module` will take, after a line that says it. Raises UsageError if it is more
    than is free: starting it anyway might take the machine with it.
    """
    context.imports("psutil")
    from .memory_budget import measure_free_memory

    args, place = context.args, context.place
    parameters = [(p.numel(), p.element_size(), p.requires_grad) for p in module.parameters()]
    wanted = ReplayMode(args.backward, args.zero, args.precision, place.world_size)
    memory = estimate_memory(parameters, wanted, context.products["inputs"].largest)
    device = find_device(context)
    free = measure_free_memory(device, place.local_world_size)
    here = {p.device.type for p in module.parameters()} == {device.type}
    line = format_memory(memory, free)
    # What lies there already is no longer free.
    missing = memory.needed - (memory.weights if here else 0) > free.free
    if missing and "memory_budget" not in args.skip:
        raise UsageError(line, _WAYS_OUT)
    context.say(line)
    return memory
