"""How near the memory budget comes to what a training takes, over architectures and settings.

    python benchmarks/memory_budget.py            # all cases: a few minutes
    python benchmarks/memory_budget.py qwen neox  # those whose name has one; "quick": two of them

A row a case: weights with LoRA, gradients, optimizer state and the peak, predicted / measured
(MiB), and their ratio; and the seconds that the prediction took. On the CPU, by counting
allocations (training_memory.py). The figures to keep: 10 % for the parts, 25 % for the peak.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import transformers
from hangbisect.pipelines.dry_run import dry_run
from hangbisect.pipelines.memory_budget import TrainingPlan, find_precision
from training_memory import measured

MIB = 1 << 20
PARTS, WHOLE = 0.10, 0.25

_SHAPE = {
    "vocab_size": 4096,
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
}


def gpt2() -> Any:
    """Return GPT-2's shape: tied embeddings, Conv1D layers, dropout."""
    return transformers.GPT2Config(
        vocab_size=4096, n_positions=512, n_embd=192, n_layer=4, n_head=6, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip


def llama() -> Any:
    """Return a Llama with two heads of keys for six of queries."""
    return transformers.LlamaConfig(**_SHAPE, num_key_value_heads=2)


def qwen() -> Any:
    """Return a Qwen2: biases, tied embeddings, a large vocabulary for its size."""
    shape = {**_SHAPE, "vocab_size": 32000}
    return transformers.Qwen2Config(**shape, num_key_value_heads=2, tie_word_embeddings=True)


def gemma() -> Any:
    """Return a Gemma: one head of keys, heads of another size."""
    return transformers.GemmaConfig(**_SHAPE, num_key_value_heads=1, head_dim=64)


def neox() -> Any:
    """Return a GPT-NeoX: parallel attention, rotary embeddings on a part."""
    return transformers.GPTNeoXConfig(**_SHAPE)


@dataclass(frozen=True)
class Case:
    """A row."""

    name: str
    config: Callable[[], Any]
    plan: TrainingPlan


_FP32, _BF16 = find_precision("fp32"), find_precision("bf16")
_MIXED = find_precision("bf16-mixed")

CASES = (
    Case("quick: gpt2 lora", gpt2, TrainingPlan(_FP32, 2, 2, 64, 16)),
    Case("quick: llama, checkpoints", llama, TrainingPlan(_FP32, 2, 1, 64, 0, (), True)),
    Case("gpt2 full", gpt2, TrainingPlan(_FP32, 4, 1, 128)),
    Case("gpt2 full, sums up", gpt2, TrainingPlan(_FP32, 2, 4, 128)),
    Case("gpt2 lora 16", gpt2, TrainingPlan(_FP32, 4, 1, 128, 16)),
    Case("gpt2 mixed", gpt2, TrainingPlan(_MIXED, 4, 1, 128)),
    Case("llama full", llama, TrainingPlan(_FP32, 4, 1, 128)),
    Case("llama full, checkpoints", llama, TrainingPlan(_FP32, 4, 1, 256, 0, (), True)),
    Case("llama bf16", llama, TrainingPlan(_BF16, 4, 1, 128)),
    Case("llama lora 64 bf16", llama, TrainingPlan(_BF16, 1, 2, 128, 64)),
    Case("llama lora 8 mixed, ckpt", llama, TrainingPlan(_MIXED, 2, 2, 256, 8, (), True)),
    Case("llama q_proj alone", llama, TrainingPlan(_FP32, 1, 1, 512, 8, ("q_proj",))),
    Case("llama sgd", llama, TrainingPlan(_FP32, 4, 1, 128, optimizer="sgd")),
    Case("qwen full", qwen, TrainingPlan(_FP32, 1, 1, 128)),
    Case("qwen lora 128, ckpt", qwen, TrainingPlan(_FP32, 2, 1, 512, 128, (), True)),
    Case("qwen mixed", qwen, TrainingPlan(_MIXED, 2, 2, 128)),
    Case("gemma full", gemma, TrainingPlan(_FP32, 2, 1, 128)),
    Case("neox full", neox, TrainingPlan(_FP32, 2, 1, 128)),
)


@dataclass(frozen=True)
class Row:
    """(predicted, measured) in bytes."""

    weights: tuple[int, int]
    gradients: tuple[int, int]
    optimizer: tuple[int, int]
    peak: tuple[int, int]
    seconds: float  # that the prediction took

    @property
    def keeps(self) -> bool:
        """Whether it is as near as it has to be."""
        parts = (self.weights, self.gradients, self.optimizer)
        return all(_off(*part) <= PARTS for part in parts) and _off(*self.peak) <= WHOLE


def row(case: Case) -> Row:
    """Return what is predicted and what is measured."""
    began = time.perf_counter()
    held = dry_run(case.config(), case.plan)
    seconds = time.perf_counter() - began
    real = measured(case.config(), case.plan)
    return Row(
        weights=(held.all_weights + held.lora, real.weights),
        gradients=(held.gradients, real.gradients),
        optimizer=(held.optimizer, real.optimizer),
        peak=(held.peak, real.peak),
        seconds=seconds,
    )


def _off(predicted: int, measured: int) -> float:
    if predicted == measured:
        return 0.0
    return abs(predicted - measured) / measured if measured else 1.0


def _told(predicted: int, measured: int) -> str:
    ratio = predicted / measured if measured else 1.0
    return f"{predicted / MIB:7.2f} /{measured / MIB:7.2f} {ratio:5.3f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases whose name has one of these")
    names = parser.parse_args().names or [""]
    logging.getLogger("transformers").setLevel(logging.ERROR)
    head = ("weights with LoRA", "gradients", "optimizer state", "peak")
    print(f"{'':26}" + "".join(f"{one:>24}" for one in head) + "  seconds")
    kept = []
    for case in CASES:
        if any(name in case.name for name in names):
            one = row(case)
            told = (one.weights, one.gradients, one.optimizer, one.peak)
            cells = "".join(f"{_told(*pair):>24}" for pair in told)
            print(f"{case.name:26}{cells}  {one.seconds:7.1f}{'' if one.keeps else '  OFF'}")
            kept.append(one.keeps)
    print(f"{sum(kept)} of {len(kept)} within {PARTS:.0%} for the parts and {WHOLE:.0%} in all")


if __name__ == "__main__":
    main()
