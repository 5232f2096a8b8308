"""How long a generation takes, and whether it fits: figures and advice. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .kv_cache import CacheLayout
from .words import counted, duration, rate, size

FULL = 0.9  # of a GPU's memory: beyond it the allocator has no room to work with
SLOW_STEP = 120.0  # seconds that a step should not take: a loop of hundreds takes days
FEWER_TOKENS = (256, 128)


@dataclass(frozen=True)
class Link:
    """Bytes that have to come from somewhere for each forward pass, and how fast they come."""

    source: str  # "cpu", "disk"
    bytes: int
    bytes_a_second: float  # as measured

    @property
    def seconds(self) -> float:
        return self.bytes / self.bytes_a_second


@dataclass(frozen=True)
class Gpu:
    """Memory of a GPU, in bytes."""

    name: str  # "GPU 0"
    allocated: int
    reserved: int
    free: int
    total: int

    @property
    def full(self) -> float:
        """The share that is in use, by anybody."""
        return 1 - self.free / self.total

    def in_words(self) -> str:
        """Return allocated, reserved and total."""
        return (
            f"{self.name} memory: {size(self.allocated)} allocated, {size(self.reserved)} "
            f"reserved, {size(self.total)} total, {self.full:.0%} in use"
        )


def step_seconds(links: Sequence[Link], tokens: int, token_seconds: float | None = None) -> float:
    """Return how long a generation of `tokens` tokens takes: each is a forward pass, and each pass
    moves every offloaded byte; no less than `token_seconds` a token, where that was measured.
    """
    moving = sum(link.seconds for link in links)
    return tokens * max(moving, token_seconds or 0.0)


def within_context(max_length: int, new: int, positions: int | None) -> tuple[int, int]:
    """Return how many tokens a prompt and an answer may have together with a model that knows so
    many positions: the answer at most half of them, the prompt what is left.
    """
    if positions is None or max_length + new <= positions:
        return max_length, new
    new = min(new, max(1, positions // 2))
    return min(max_length, positions - new), new


def forecast(links: Sequence[Link], tokens: int, token_seconds: float | None) -> str:
    """Return what to expect of a step, and why it takes so long."""
    total = step_seconds(links, tokens, token_seconds)
    measured = "" if token_seconds is None else f" (measured: {token_seconds:.3f} s a token)"
    line = f"about {duration(total)} for {counted(tokens, 'token')}{measured}"
    if not links:
        return line
    moved = " and ".join(
        f"{size(link.bytes)} from the {link.source} at {rate(link.bytes_a_second)}"
        for link in links
    )
    moving = sum(link.seconds for link in links)
    return f"{line}; each token moves {moved}, which takes {moving:.3f} s"


def too_slow(links: Sequence[Link], tokens: int, token_seconds: float | None) -> str | None:
    """Return what to change about a step that will be slow, None if it will not be."""
    total = step_seconds(links, tokens, token_seconds)
    if total <= SLOW_STEP:
        return None
    ways = [
        f"--max-new-tokens {fewer}: {duration(step_seconds(links, fewer, token_seconds))}"
        for fewer in FEWER_TOKENS
        if fewer < tokens
    ]
    if links:
        ways += ["--quantization on: half the bytes or fewer", "more or larger GPUs"]
    return f"Slow, no hang: a step will take {duration(total)}. {'; '.join(ways)}"


def too_full(gpu: Gpu, layout: CacheLayout | None, batch: int, tokens: int) -> str | None:
    """Return what a nearly full GPU means for a generation up to `tokens` tokens, prompt included,
    and what to change; None if it is not that full.
    """
    if gpu.full <= FULL:
        return None
    line = f"{gpu.name} is {gpu.full:.0%} full before generation, {size(gpu.free)} free"
    if layout is not None:
        wanted = layout.bytes(batch, tokens)
        fits = "it fits" if wanted < gpu.free else "it does not fit"
        line += f"; the KV cache of {batch} x {tokens} tokens wants {size(wanted)}: {fits}"
        half = max(1, tokens // 2)
        line += f"; of {half} tokens {size(layout.bytes(batch, half))}"
    return (
        f"{line}. Change: fewer tokens (--max-new-tokens, --max-length), a smaller batch, "
        "--quantization on, or more GPUs"
    )


def cache_in_words(layout: CacheLayout, batch: int, tokens: int) -> str:
    """Return how much the KV cache will want."""
    first, both = layout.bytes(1, 1), layout.bytes(1, 2)
    return (
        f"KV cache: {size(both - first)} a token in {counted(len(layout.layers), 'layer')}; "
        f"{batch} x {tokens} tokens want {size(layout.bytes(batch, tokens))}"
    )


def still_generating(seconds: float, tokens: int, wanted: int, links: Sequence[Link]) -> str:
    """Return what to say of a generation that has taken so long and is not done, and why it may."""
    line = f"generation has taken {duration(seconds)} so far, {tokens} of {wanted} tokens"
    if not tokens:
        return f"{line}: not one token yet; the watch says whether anything moves"
    left = seconds / tokens * (wanted - tokens)
    line += f", {seconds / tokens:.2f} s each: slow, no hang, about {duration(left)} left"
    if links:
        moved = " and ".join(f"{size(link.bytes)} from the {link.source}" for link in links)
        line += f". Each token moves {moved}"
    return f"{line}. Fewer tokens (--max-new-tokens {max(1, wanted // 2)}) take as much less"
