"""What is known not to work in a replay, each with the reason and the way out.

What the libraries do is as seen in torch 2.13, transformers 5.23 and deepspeed 0.19.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...bisection.toggles import AS_SET
from ..impossible import Impossible


@dataclass(frozen=True)
class Settings:
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


def _compiled_flash_packed(facts: Settings) -> str | None:
    packed = facts.packing == "on" or (facts.packing == AS_SET and facts.packed)
    if facts.compile == "off" or facts.attention != "flash" or not packed:
        return None
    rows = "--packing on" if facts.packing == "on" else "inputs that were captured packed"
    return f"--compile {facts.compile}, --attention flash and {rows}"


def _deepcompile_without_zero(facts: Settings) -> str | None:
    if facts.compile != "deepcompile" or facts.zero in ("1", "2", "3"):
        return None
    return f"--compile deepcompile and --zero {facts.zero}"


def _deepcompile_without_gpu(facts: Settings) -> str | None:
    if facts.compile != "deepcompile" or facts.device == "cuda":
        return None
    return f"--compile deepcompile and a replay on the {facts.device.upper()}"


def _flash_without_library(facts: Settings) -> str | None:
    wanted = facts.attention == "flash" and facts.of_transformers
    if not wanted or "flash_attn" not in facts.missing:
        return None
    return "--attention flash for a model of transformers', and no flash_attn"


def _flash_on_full(facts: Settings) -> str | None:
    on_gpu = facts.attention == "flash" and facts.device == "cuda"
    full = facts.precision == "fp32"
    return "--attention flash and --precision fp32" if on_gpu and full else None


def _zero_without_library(facts: Settings) -> str | None:
    if facts.zero == "off" or "deepspeed" not in facts.missing:
        return None
    return f"--zero {facts.zero}, and no deepspeed"


IMPOSSIBLE: tuple[Impossible[Settings], ...] = (
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
