"""Step 9: the module as it is to be called: attention, precision, device, ZeRO, compilation."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...bisection.toggles import AS_SET
from ...errors import UsageError
from ..generating.device import own_device
from .module_step import in_words

if TYPE_CHECKING:
    from ...rank.context import Context

_DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
_OF_TRANSFORMERS = {"flash": "flash_attention_2", "sdpa": "sdpa", "eager": "eager"}
# torch.nn.attention.SDPBackend: what scaled_dot_product_attention may take; None: what suits.
_KERNELS = {"flash": "FLASH_ATTENTION", "sdpa": None, "eager": "MATH"}


@dataclass(frozen=True)
class Ready:
    """What is called for each input."""

    module: Any  # the module itself
    call: Callable[..., Any]  # it, or DeepSpeed's engine around it
    device: Any
    dtype: Any  # of the tensors of inputs that are no whole numbers; None: as they are
    backward: Callable[[Any], None]
    attending: Callable[[], contextlib.AbstractContextManager[None]]


def ready(context: Context) -> Ready:
    """Return the module as the toggles want it."""
    args, made = context.args, context.products["weights"]
    torch, device = context.imports("torch"), own_device(context)
    attending = _attention(made, context)
    dtype = getattr(torch, _DTYPES[args.precision]) if args.precision != AS_SET else None
    context.about_to("torch.nn.Module.to", f" {device}" + (f", {dtype}" if dtype else ""))
    made.to(device=device, dtype=dtype)
    called = made if args.zero == "off" else _engine(made, context)
    _compile(called, context)
    context.say(f"Ready on {device}: {in_words(made)}; {_settings(context)}")
    return Ready(
        module=made,
        call=called,
        device=device,
        dtype=dtype,
        backward=called.backward if args.zero != "off" else _backward,
        attending=attending,
    )


def _settings(context: Context) -> str:
    args = context.args
    return (
        f"compile {args.compile}, attention {args.attention or 'as built'}, packing "
        f"{args.packing}, ZeRO {args.zero}, precision {args.precision}"
    )


# ---- attention -----------------------------------------------------------------------------------


def _attention(
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


def _engine(made: Any, context: Context) -> Any:
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


def _backward(loss: Any) -> None:
    loss.backward()


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
