"""How long a generation takes and whether it fits: the KV cache, the memory of GPUs, figures and
advice; and steps 7, 14 and 15, which say it.

How a model lays out its KV cache is asked of transformers itself: two short forward passes on
the device meta, which computes nothing and takes no memory. So no table of architectures is
needed.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.lazy_dataclass import dataclass
from ..base.words import format_bytes, format_count, format_duration, format_rate

if TYPE_CHECKING:
    from ..rank.walk import Context


@dataclass(frozen=True)
class CacheLayer:
    """What one layer keeps for one sequence, in numbers (not bytes)."""

    per_token: float
    constant: float = 0.0  # a recurrent state, whatever the length
    window: int | None = None  # past so many tokens nothing more is kept; None: all of them


@dataclass(frozen=True)
class CacheLayout:
    """What all layers keep, each number in `number_bytes` bytes (2 for bf16 and fp16)."""

    layers: tuple[CacheLayer, ...]
    number_bytes: int

    def bytes(self, batch: int, tokens: int) -> int:
        """Return what `batch` sequences of `tokens` tokens take, prompt and answer together."""
        numbers = sum(
            layer.constant + layer.per_token * _tokens_kept(layer.window, tokens)
            for layer in self.layers
        )
        return round(batch * numbers * self.number_bytes)


def fit_layer(few: Mapping[int, int], window: int | None) -> CacheLayer:
    """Return a layer of which it is known how many numbers it keeps at two lengths (`few`, by
    tokens), both shorter than its window. Raises ValueError for one length.
    """
    (short, at_short), (long, at_long) = sorted(few.items())
    slope = (at_long - at_short) / (long - short)
    return CacheLayer(slope, at_short - slope * short, window)


def _tokens_kept(window: int | None, tokens: int) -> int:
    # The new token is compared with itself as well: a window of 4096 keeps 4095 that are past.
    return tokens if window is None else min(tokens, max(0, window - 1))


_SHORT, _LONG = 2, 3  # tokens of the two passes


def find_cache_layout(config: Any, dtype: Any, transformers: Any, torch: Any) -> CacheLayout:
    """Return the layout for a model of that config whose numbers have that dtype.

    Raises whatever transformers raises for a model that cannot run on meta.
    """
    plain = copy.deepcopy(config)
    if hasattr(plain, "quantization_config"):
        del plain.quantization_config
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(plain, dtype=dtype).eval()
    kept = {tokens: _numbers_kept(model, tokens, torch) for tokens in (_SHORT, _LONG)}
    windows = [window for _, window in kept[_SHORT]]
    layers = tuple(
        fit_layer({_SHORT: short, _LONG: long}, window)
        for (short, _), (long, _), window in zip(kept[_SHORT], kept[_LONG], windows, strict=True)
    )
    return CacheLayout(layers, torch.empty((), dtype=dtype, device="meta").element_size())


def _numbers_kept(model: Any, tokens: int, torch: Any) -> list[tuple[int, int | None]]:
    """Return for each layer how many numbers it keeps after so many tokens, and its window."""
    ids = torch.zeros((1, tokens), dtype=torch.long, device="meta")
    with torch.no_grad():
        cache = model(input_ids=ids, use_cache=True).past_key_values
    return [
        (
            sum(one.numel() for one in _growing_tensors(layer, torch)),
            getattr(layer, "sliding_window", None),
        )
        for layer in cache.layers
    ]


def _growing_tensors(layer: Any, torch: Any) -> Iterator[Any]:
    """Yield the tensors that grow with what a layer has seen: on meta, as the model is."""
    for value in vars(layer).values():
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, torch.Tensor) and one.dim() > 1:
                yield one


FULL = 0.9  # of a GPU's memory: beyond it the allocator has no room to work with
SLOW_STEP = 120.0  # seconds that a step should not take: a loop of hundreds takes days
FEWER_TOKENS = (256, 128)


@dataclass(frozen=True)
class OffloadLink:
    """Bytes that have to come from somewhere for each forward pass, and how fast they come."""

    source: str  # "cpu", "disk"
    bytes: int
    bytes_a_second: float  # as measured

    @property
    def seconds(self) -> float:
        """For one forward pass."""
        return self.bytes / self.bytes_a_second


@dataclass(frozen=True)
class GpuMemory:
    """Memory of a GPU, in bytes."""

    name: str  # "GPU 0"
    allocated: int
    reserved: int
    free: int
    total: int

    @property
    def full(self) -> float:
        """The share that is in use, by any process."""
        return 1 - self.free / self.total

    def in_words(self) -> str:
        """Return allocated, reserved and total."""
        return (
            f"{self.name} memory: {format_bytes(self.allocated)} allocated, "
            f"{format_bytes(self.reserved)} reserved, {format_bytes(self.total)} total, "
            f"{self.full:.0%} in use"
        )


def estimate_step_seconds(
    links: Sequence[OffloadLink], tokens: int, token_seconds: float | None = None
) -> float:
    """Return how long a generation of `tokens` tokens takes: each is a forward pass, and each pass
    moves every offloaded byte; no less than `token_seconds` a token, where that was measured.
    """
    moving = sum(link.seconds for link in links)
    return tokens * max(moving, token_seconds or 0.0)


def fit_to_context(max_length: int, new: int, positions: int | None) -> tuple[int, int]:
    """Return how many tokens a prompt and an answer may have together with a model that knows so
    many positions: the answer at most half of them, the prompt what is left.
    """
    if positions is None or max_length + new <= positions:
        return max_length, new
    new = min(new, max(1, positions // 2))
    return min(max_length, positions - new), new


def forecast_step(links: Sequence[OffloadLink], tokens: int, token_seconds: float | None) -> str:
    """Return what to expect of a step, and why it takes so long."""
    total = estimate_step_seconds(links, tokens, token_seconds)
    measured = "" if token_seconds is None else f" (measured: {token_seconds:.3f} s a token)"
    line = f"about {format_duration(total)} for {format_count(tokens, 'token')}{measured}"
    if not links:
        return line
    moved = " and ".join(
        f"{format_bytes(link.bytes)} from the {link.source} at {format_rate(link.bytes_a_second)}"
        for link in links
    )
    moving = sum(link.seconds for link in links)
    return f"{line}; each token moves {moved}, which takes {moving:.3f} s"


def advise_if_slow(
    links: Sequence[OffloadLink], tokens: int, token_seconds: float | None
) -> str | None:
    """Return what to change about a step that will be slow, None if it will not be."""
    total = estimate_step_seconds(links, tokens, token_seconds)
    if total <= SLOW_STEP:
        return None
    ways = [
        f"--max-new-tokens {fewer}: "
        + format_duration(estimate_step_seconds(links, fewer, token_seconds))
        for fewer in FEWER_TOKENS
        if fewer < tokens
    ]
    if links:
        ways += ["--quantization on: half the bytes or fewer", "more or larger GPUs"]
    return f"Slow, no hang: a step will take {format_duration(total)}. {'; '.join(ways)}"


def advise_if_full(
    gpu: GpuMemory, layout: CacheLayout | None, batch: int, tokens: int
) -> str | None:
    """Return what a nearly full GPU means for a generation up to `tokens` tokens, prompt included,
    and what to change; None if it is not that full.
    """
    if gpu.full <= FULL:
        return None
    line = f"{gpu.name} is {gpu.full:.0%} full before generation, {format_bytes(gpu.free)} free"
    if layout is not None:
        wanted = layout.bytes(batch, tokens)
        fits = "it fits" if wanted < gpu.free else "it does not fit"
        line += f"; the KV cache of {batch} x {tokens} tokens wants {format_bytes(wanted)}: {fits}"
        half = max(1, tokens // 2)
        line += f"; of {half} tokens {format_bytes(layout.bytes(batch, half))}"
    return (
        f"{line}. Change: fewer tokens (--max-new-tokens, --max-length), a smaller batch, "
        "--quantization on, or more GPUs"
    )


def format_cache(layout: CacheLayout, batch: int, tokens: int) -> str:
    """Return how much the KV cache will want."""
    first, both = layout.bytes(1, 1), layout.bytes(1, 2)
    return (
        f"KV cache: {format_bytes(both - first)} a token in "
        f"{format_count(len(layout.layers), 'layer')}; "
        f"{batch} x {tokens} tokens want {format_bytes(layout.bytes(batch, tokens))}"
    )


def describe_slow_generation(
    seconds: float, tokens: int, wanted: int, links: Sequence[OffloadLink]
) -> str:
    """Return what to say of a generation that has taken so long and is not done, and why it may."""
    line = f"generation has taken {format_duration(seconds)} so far, {tokens} of {wanted} tokens"
    if not tokens:
        return f"{line}: not one token yet; the watch says whether anything moves"
    left = seconds / tokens * (wanted - tokens)
    line += f", {seconds / tokens:.2f} s each: slow, no hang, about {format_duration(left)} left"
    if links:
        moved = " and ".join(f"{format_bytes(link.bytes)} from the {link.source}" for link in links)
        line += f". Each token moves {moved}"
    return f"{line}. Fewer tokens (--max-new-tokens {max(1, wanted // 2)}) take as much less"


def measure_gpus(torch: Any) -> list[GpuMemory]:
    """Return the memory of each GPU that this process uses; [] before CUDA is in use."""
    if not torch.cuda.is_initialized():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        # Asked of a GPU that is not in use, mem_get_info would begin to use it.
        if index != torch.cuda.current_device() and not torch.cuda.memory_reserved(index):
            continue
        free, total = torch.cuda.mem_get_info(index)
        allocated = torch.cuda.memory_allocated(index)
        reserved = torch.cuda.memory_reserved(index)
        found.append(GpuMemory(f"GPU {index}", allocated, reserved, free, total))
    return found


def format_memory_in_use(context: Context) -> list[str]:
    """Return a line for each GPU; without one a line that says so, with the process's memory."""
    found = measure_gpus(context.imports("torch"))
    if found:
        return [gpu.in_words() for gpu in found]
    used = context.imports("psutil").Process().memory_info().rss
    return [f"No GPU in use: memory of the process {format_bytes(used)}"]


def clear_caches(context: Context) -> None:
    """Let go of what nobody needs any more, also of what torch keeps of a GPU."""
    gc.collect()
    torch = context.imports("torch")
    if torch.cuda.is_initialized():
        context.about_to("torch.cuda.empty_cache")
        torch.cuda.empty_cache()
    for line in format_memory_in_use(context):
        context.say(line)


def memory(context: Context) -> CacheLayout | None:
    """Say what a generation will need and how long it will take, and what to change if that is too
    much; return how the KV cache is laid out, None where that could not be found out.
    """
    args, torch = context.args, context.imports("torch")
    planned = context.products["plan"]
    tokens = planned.prompt_tokens + planned.new_tokens
    layout = _layout(context)
    for line in format_memory_in_use(context):
        context.say(line)
    if layout is not None:
        context.say(format_cache(layout, args.batch_size, tokens))
    for gpu in measure_gpus(torch):
        warning = advise_if_full(gpu, layout, args.batch_size, tokens)
        if warning:
            context.say(warning)
    links = context.products["placement"].links
    seconds = context.products["test_generation"].token_seconds
    context.say(f"A step: {forecast_step(links, planned.new_tokens, seconds)}")
    slow = advise_if_slow(links, planned.new_tokens, seconds)
    if slow:
        context.say(slow)
    return layout


def _layout(context: Context) -> CacheLayout | None:
    model = context.products["weights"]
    torch, transformers = context.imports("torch"), context.imports("transformers")
    try:
        return find_cache_layout(model.config, model.dtype, transformers, torch)
    except Exception as error:  # whatever a model does that cannot run on meta
        context.say(f"The size of the KV cache is not known: {type(error).__name__}: {error}")
        return None
