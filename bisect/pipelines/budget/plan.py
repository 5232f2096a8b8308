"""What is to be trained, as far as it matters to memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Optimizer = Literal["adamw", "adamw-8bit", "sgd"]


@dataclass(frozen=True)
class Precision:
    """In what a model's weights are kept, and in what it computes.

    `autocast`: torch.autocast computes in `computes`, whatever the weights are in. `scaler`: the
    loss is scaled, so that small gradients do not vanish in float16.
    """

    name: str
    weights: str  # a torch dtype: "bfloat16"
    computes: str
    autocast: bool = False
    scaler: bool = False


# From as one runs it to safest. With LoRA a mixed precision keeps the weights, which are not
# trained, in the short form; peft keeps its adapters in float32 then.
PRECISIONS = (
    Precision("fp16", "float16", "float16"),
    Precision("fp16-mixed", "float32", "float16", autocast=True, scaler=True),
    Precision("bf16", "bfloat16", "bfloat16"),
    Precision("bf16-mixed", "float32", "bfloat16", autocast=True),
    Precision("fp32", "float32", "float32"),
)


def precision(name: str) -> Precision:
    """Return the precision of that name. Raises KeyError."""
    return {one.name: one for one in PRECISIONS}[name]


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained with what, on each rank."""

    precision: Precision
    batch_size: int = 1  # examples at once
    accumulation: int = 1  # batches for each step of the optimizer
    length: int = 128  # tokens an example
    lora_rank: int = 0  # 0: all weights are trained
    lora_modules: tuple[str, ...] = ()  # names of modules; (): all linear layers but the last
    gradient_checkpointing: bool = False
    optimizer: Optimizer = "adamw"
    quantization: Literal["off", "8bit", "4bit"] = "off"
    zero_stage: int = 0  # DeepSpeed's: what the ranks share among them
    ranks: int = 1

    @property
    def effective_batch(self) -> int:
        """Examples of each rank for each step of the optimizer."""
        return self.batch_size * self.accumulation

    @property
    def weights_dtype(self) -> str:
        """The torch dtype that weights are loaded in."""
        frozen = self.lora_rank > 0 and self.precision.autocast
        return self.precision.computes if frozen else self.precision.weights
