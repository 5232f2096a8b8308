"""Steps 6 to 9: the module, built alone; a process group, as the module finds one in its job; its
weights; and the module as it is to be called: attention, precision, device, ZeRO, compilation.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..base.errors import UsageError
from ..base.lazy_dataclass import dataclass
from ..base.words import format_bytes, format_count
from ..toggles.toggle import AS_SET
from . import model_steps
from .model_steps import asking_the_hub, find_device
from .replay_preflight import check_memory

if TYPE_CHECKING:
    from ..rank.walk import Context


def module(context: Context) -> Any:
    """Return the model of --model, else a small one. With --use module=... it is not called."""
    name = context.args.model
    torch, transformers = context.imports("torch"), context.imports("transformers")
    if not name:
        context.about_to("transformers.AutoModelForCausalLM.from_config", ", a small model")
        context.not_exercised.append("a module of yours (a small model)")
        return model_steps.build_small_model(transformers, torch)
    with asking_the_hub("model", name, context):
        context.about_to("transformers.AutoModelForCausalLM.from_pretrained", f" with {name}")
        return transformers.AutoModelForCausalLM.from_pretrained(name)


def get_built_module(context: Context) -> Any:
    """Return what was built. Raises UsageError where a user's own function gave no module."""
    made = context.products["module"]
    torch = context.imports("torch")
    if isinstance(made, torch.nn.Module):
        return made
    raise UsageError(
        f"--use module={context.args.use.get('module')} returned {type(made).__name__}: it is to "
        "be a torch.nn.Module",
        "The function is called with one argument: given.args, given.context, given.inputs.",
    )


def describe_module(made: Any) -> str:
    """Return "Actor with 1,024 parameters, 4 KiB"."""
    parameters = list(made.parameters())
    number = sum(p.numel() for p in parameters)
    held = sum(p.numel() * p.element_size() for p in parameters)
    return f"{type(made).__name__} with {number:,} parameters, {format_bytes(held)}"


def distributed(context: Context) -> bool:
    """Make the process group, under a launcher and for ZeRO; return whether there is one."""
    made = get_built_module(context)
    context.say(f"Module {describe_module(made)}")
    if "module" in context.args.use:
        check_memory(context, made)
    torch, place = context.imports("torch"), context.place
    group = context.imports("torch.distributed")
    if not group.is_available():
        context.say("No process group: this torch was built without torch.distributed")
        return False
    if group.is_initialized():
        context.say("The process group is the one that was made while the module was built")
        return True
    if place.launcher is None and place.world_size == 1 and context.args.zero == "off":
        context.say("No process group: one process, without a launcher")
        return False
    device = find_device(context)
    backend = "nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    context.about_to("torch.distributed.init_process_group", f" with {backend}")
    # What a single process says in place of the launcher's variables.
    alone = {"store": group.HashStore(), "rank": 0, "world_size": 1}
    group.init_process_group(backend, **(alone if place.world_size == 1 else {}))
    context.say(f"Process group: {backend}, {format_count(group.get_world_size(), 'rank')}")
    return True


_MOST_NAMED = 3
_FOREIGN = re.compile(r"GLOBAL ([\w.]+)")  # in what torch.load says


def weights(context: Context) -> Any:
    """Return the module with its weights, after they were saved if that is asked for."""
    made, args = get_built_module(context), context.args
    if args.weights:
        _load_weights(made, args.weights, context)
    else:
        context.say("Weights: those that the module was built with")
    if args.save_module:
        with context.rank0_only("saving the module") as mine:
            if mine:
                hub = context.imports("huggingface_hub")
                context.about_to("huggingface_hub.save_torch_model", f" to {args.save_module}")
                os.makedirs(args.save_module, exist_ok=True)
                hub.save_torch_model(made, args.save_module)
                context.say(f"Module saved: for the next time --weights {args.save_module}")
    return made


def _load_weights(made: Any, path: str, context: Context) -> None:
    hub = context.imports("huggingface_hub")
    names = list(made.state_dict())
    context.about_to("huggingface_hub.load_torch_model", f" with {path}")
    try:
        # Not safe: torch's own files too, which weights_only keeps from executing anything.
        loaded = hub.load_torch_model(made, path, strict=False, safe=False, weights_only=True)
    except Exception as error:  # a file may break a reader in any way
        raise UsageError(
            f"--weights {path} cannot be loaded: {_explain_failure(error)}",
            "It takes a file of safetensors, one of tensors alone by torch.save(state_dict), or a "
            "folder with model.safetensors.",
        ) from None
    missing, unexpected = _find_missing(made, loaded.missing_keys), list(loaded.unexpected_keys)
    if names and len(missing) == len(names):
        raise UsageError(
            f"--weights {path} has none of the {len(names)} weights of {type(made).__name__}: it "
            f"has {_name_some(unexpected) or 'nothing'}, and the module {_name_some(names)}",
            "Save the module's own state_dict().",
        )
    context.say(f"Weights: {len(names) - len(missing)} of {len(names)} from {path}")
    if missing:
        context.say(f"Not in it, and as they were built: {_name_some(missing)}")
    if unexpected:
        context.say(f"In it, and of nothing in the module: {_name_some(unexpected)}")


def _explain_failure(error: Exception) -> str:
    text = str(error)
    foreign = _FOREIGN.search(text)
    if foreign:
        return f"it holds {foreign[1]}, and only tensors are taken"
    first, _, more = text.strip().partition("\n")
    if first.endswith(":"):  # torch's: which weight it is stands below
        first = f"{first} {more.strip().partition(chr(10))[0]}"
    return f"{type(error).__name__}: {first[:300]}"


def _find_missing(made: Any, named: list[str]) -> list[str]:
    """Return those of `named` that are not in the file under another name, as tied weights are."""
    held = made.state_dict(keep_vars=True)
    loaded = {id(value) for name, value in held.items() if name not in named}
    return [name for name in named if id(held.get(name)) not in loaded]


def _name_some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    text = ", ".join(names[:_MOST_NAMED])
    return f"{text} and {format_count(more, 'other')}" if more > 0 else text


_DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
_OF_TRANSFORMERS = {"flash": "flash_attention_2", "sdpa": "sdpa", "eager": "eager"}
# torch.nn.attention.SDPBackend: what scaled_dot_product_attention may take; None: what suits.
_KERNELS = {"flash": "FLASH_ATTENTION", "sdpa": None, "eager": "MATH"}


@dataclass(frozen=True)
class ReadyModule:
    """What is called for each input."""

    module: Any  # the module itself
    call: Callable[..., Any]  # it, or DeepSpeed's engine around it
    device: Any
    dtype: Any  # of the tensors of inputs that are no whole numbers; None: as they are
    backward: Callable[[Any], None]
    attending: Callable[[], contextlib.AbstractContextManager[None]]


def ready(context: Context) -> ReadyModule:
    """Return the module as the toggles want it."""
    args, made = context.args, context.products["weights"]
    torch, device = context.imports("torch"), find_device(context)
    attending = _set_attention(made, context)
    dtype = getattr(torch, _DTYPES[args.precision]) if args.precision != AS_SET else None
    context.about_to("torch.nn.Module.to", f" {device}" + (f", {dtype}" if dtype else ""))
    made.to(device=device, dtype=dtype)
    called = made if args.zero == "off" else _make_engine(made, context)
    _compile(called, context)
    context.say(f"Ready on {device}: {describe_module(made)}; {_format_settings(context)}")
    return ReadyModule(
        module=made,
        call=called,
        device=device,
        dtype=dtype,
        backward=called.backward if args.zero != "off" else lambda loss: loss.backward(),
        attending=attending,
    )


def _format_settings(context: Context) -> str:
    args = context.args
    return (
        f"compile {args.compile}, attention {args.attention or 'as built'}, packing "
        f"{args.packing}, ZeRO {args.zero}, precision {args.precision}"
    )


# ---- attention -----------------------------------------------------------------------------------


def _set_attention(
    made: Any, context: Context
) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Set how a model of transformers' computes attention; of any other module return what to call
    it in, which says what torch's scaled_dot_product_attention may take.
    """
    wanted = context.args.attention
    if wanted is None:
        return contextlib.nullcontext
    if hasattr(made, "set_attn_implementation"):
        context.about_to(
            f"transformers.{type(made).__name__}.set_attn_implementation", f" {wanted}"
        )
        made.set_attn_implementation(_OF_TRANSFORMERS[wanted])
        return contextlib.nullcontext
    attention = context.imports("torch.nn.attention")
    kernel = _KERNELS[wanted]
    if kernel is None:
        return contextlib.nullcontext
    context.say(
        f"Attention {wanted}: torch's scaled_dot_product_attention takes {kernel} alone; what the "
        "module computes without it is as it was built (given.args.attention)"
    )

    @contextlib.contextmanager
    def attending() -> Iterator[None]:
        with attention.sdpa_kernel(getattr(attention.SDPBackend, kernel)):
            yield

    return attending


# ---- ZeRO ----------------------------------------------------------------------------------------


def _make_engine(made: Any, context: Context) -> Any:
    """Return DeepSpeed's engine around the module, with an optimizer that never steps."""
    args, torch = context.args, context.imports("torch")
    deepspeed = context.imports("deepspeed")
    place = context.place
    # DeepSpeed reads these where no launcher has set them.
    for name, value in (("RANK", place.rank), ("LOCAL_RANK", place.local_rank)):
        os.environ.setdefault(name, str(value))
    os.environ.setdefault("WORLD_SIZE", str(place.world_size))
    trained = [p for p in made.parameters() if p.requires_grad]
    if not trained:
        raise UsageError(
            f"--zero {args.zero}: no parameter of {type(made).__name__} is trained, so there is "
            "nothing to divide",
            "Leave --zero out.",
        )
    half = str(next(iter(trained)).dtype).removeprefix("torch.")
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": int(args.zero)},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": half == "bfloat16"},
        "fp16": {"enabled": half == "float16"},
    }
    if args.compile == "deepcompile":
        config["compile"] = {"deepcompile": True}
    context.about_to("deepspeed.initialize", f" with ZeRO {args.zero}")
    engine, *_ = deepspeed.initialize(
        model=made, optimizer=torch.optim.SGD(trained, lr=0.0), config=config
    )
    return engine


# ---- compilation ---------------------------------------------------------------------------------


def _compile(called: Any, context: Context) -> None:
    """Have a module, or an engine, compiled at its first call."""
    how = context.args.compile
    if how == "off":
        return
    context.imports("torch._dynamo")
    if how != "eager":
        context.imports("torch._inductor.compile_fx")
    backend = "inductor" if how == "deepcompile" else how
    context.about_to("torch.nn.Module.compile", f" with backend={backend}")
    called.compile(backend=backend)
