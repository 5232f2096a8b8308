"""The memory of a training on one rank: the plan, what it holds (weights, LoRA's adapters,
gradients, optimizer state), what ranks share, where a device map puts layers, what is free, and
the budget: what is needed against what is free. All sizes are bytes. Libraries are imported in
the functions that need them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal

from ..base.cgroups import limits
from ..base.lazy_dataclass import dataclass

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


def find_precision(name: str) -> Precision:
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


@dataclass(frozen=True)
class HeldMemory:
    """The most that each kind takes on one rank, and what of it is held at the peak.

    Gradients are freed after each step of the optimizer, so at the peak there may be none.
    """

    weights: Mapping[str, int]  # by dtype, LoRA's left out; tied ones are counted once
    lora: int = 0
    trained: int = 0  # numbers that are trained
    gradients: int = 0
    optimizer: int = 0
    buffers: int = 0
    peak: int = 0  # of everything, on this rank
    gradients_at_peak: int = 0
    optimizer_at_peak: int = 0
    moment: str = ""  # "in forward", "in backward"
    placed: Mapping[str, int] = field(default_factory=dict)  # weights by device, where several

    @property
    def all_weights(self) -> int:
        """Weights of every dtype."""
        return sum(self.weights.values())

    @property
    def activations(self) -> int:
        """Activations, and what an operator needs for a moment: the rest of what the peak holds."""
        known = self.all_weights + self.lora + self.buffers
        return self.peak - known - self.gradients_at_peak - self.optimizer_at_peak


@dataclass(frozen=True)
class Overhead:
    """What is held beside tensors of the model."""

    ddp_buckets: int = 0
    workspace: int = 0  # cuBLAS

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """What it is made of, by name."""
        return ("DDP's buckets", self.ddp_buckets), ("cuBLAS", self.workspace)

    @property
    def whole(self) -> int:
        """All of it."""
        return self.ddp_buckets + self.workspace


@dataclass(frozen=True)
class FreeMemory:
    """What one rank may take, in bytes. `where`: "GPU 0 NVIDIA H100", "the CPU"."""

    where: str
    free: int
    total: int


@dataclass(frozen=True)
class Budget:
    """One rank's memory under a plan. `held` None: the model cannot be run without data; `why`."""

    plan: TrainingPlan
    free: FreeMemory
    held: HeldMemory
    overhead: Overhead
    # Activations with gradient checkpointing the other way round; None: not worked out.
    other_activations: int | None = None

    @property
    def needed(self) -> int:
        """Bytes at the peak."""
        return self.held.peak + self.overhead.whole

    @property
    def margin(self) -> int:
        """Bytes that are left; below 0: that are missing."""
        return self.free.free - self.needed

    @property
    def fits(self) -> bool:
        """Whether it is all there."""
        return self.margin >= 0

    @property
    def is_hopeless(self) -> bool:
        """Whether weights, gradients and optimizer state alone are too much: no estimate."""
        held = self.held
        kept = held.all_weights + held.lora + held.optimizer
        return kept + held.gradients > self.free.free


ZERO_STAGES = (1, 2, 3)
# cuBLAS, for each handle and stream: 8 MiB, 32 on Hopper (torch, "CUDA semantics"). The larger one.
WORKSPACE = 32 << 20


def estimate_overhead(held: HeldMemory, plan: TrainingPlan, on_gpu: bool) -> Overhead:
    """Return what is held beside the model's own tensors.

    DDP copies gradients to buckets, in which it sums them up: as much again as the gradients.
    """
    return Overhead(
        ddp_buckets=held.gradients if plan.ranks > 1 and not plan.zero_stage else 0,
        workspace=WORKSPACE if on_gpu else 0,
    )


def apply_zero_stage(held: HeldMemory, plan: TrainingPlan) -> HeldMemory:
    """Return what one rank holds under the plan's ZeRO stage.

    Stage 1 shares the optimizer's state among the ranks, 2 the gradients as well, 3 the weights
    too. While a layer computes it is whole on every rank: that is not counted.
    """
    stage, ranks = plan.zero_stage, plan.ranks
    if not stage or ranks == 1:
        return held

    def part(size: int, of_stage: int) -> int:
        return size // ranks if stage >= of_stage else size

    made = replace(
        held,
        optimizer=part(held.optimizer, 1),
        optimizer_at_peak=part(held.optimizer_at_peak, 1),
        gradients=part(held.gradients, 2),
        gradients_at_peak=part(held.gradients_at_peak, 2),
        weights={dtype: part(size, 3) for dtype, size in held.weights.items()},
        lora=part(held.lora, 3),
    )
    return replace(made, peak=held.peak - (_without_activations(held) - _without_activations(made)))


def _without_activations(held: HeldMemory) -> int:
    return held.all_weights + held.lora + held.gradients_at_peak + held.optimizer_at_peak


# Bytes a number. nf4: half a byte, and a float32 for each block of 64 numbers. 8 bits: one byte; a
# float32 for each row is too little to count.
QUANTIZED_BYTES = {"4bit": 0.5 + 4 / 64, "8bit": 1.0}
QUANTIZED_NAMES = {"4bit": "nf4", "8bit": "int8"}


def apply_quantization(held: HeldMemory, model: Any, plan: TrainingPlan) -> HeldMemory:
    """Return what is held when the linear layers of `model` are quantized, all but the output's.

    While a layer computes its weights are there in full: the largest one at the peak.
    """
    output = model.get_output_embeddings()
    # By identity: peft's layers have the weight of the one that they are put around.
    found = {
        id(layer.weight): layer.weight
        for name, layer in model.named_modules()
        if is_linear(layer) and layer is not output and "lora_" not in name
    }
    sizes = [weight.numel() * weight.element_size() for weight in found.values()]
    full, largest = sum(sizes), max(sizes, default=0)
    small = int(
        sum(weight.numel() for weight in found.values()) * QUANTIZED_BYTES[plan.quantization]
    )
    weights = dict(held.weights)
    dtype = plan.weights_dtype
    weights[dtype] = weights.get(dtype, 0) - full
    weights[QUANTIZED_NAMES[plan.quantization]] = small
    return replace(held, weights=weights, peak=held.peak - full + small + largest)


def with_optimizer_state(held: HeldMemory, optimizer: int) -> HeldMemory:
    """Return what is held with an optimizer state of that many bytes."""
    at_peak = optimizer if held.optimizer_at_peak else 0
    return replace(
        held,
        optimizer=optimizer,
        optimizer_at_peak=at_peak,
        peak=held.peak - held.optimizer_at_peak + at_peak,
    )


def is_linear(layer: Any) -> bool:
    """Return whether a module is a linear layer, by either of the names that models have for it."""
    return type(layer).__name__ in ("Linear", "Conv1D")


ALL_LINEAR = "all-linear"  # peft's word for every linear layer but the output's


def make_lora_config(plan: TrainingPlan) -> Any:
    """Return peft's config of the plan's adapters."""
    import peft

    return peft.LoraConfig(
        r=plan.lora_rank,
        lora_alpha=2 * plan.lora_rank,
        target_modules=list(plan.lora_modules) or ALL_LINEAR,
        task_type="CAUSAL_LM",
    )


def add_lora(model: Any, plan: TrainingPlan) -> Any:
    """Return the model with adapters around its layers; its own weights are trained no more.

    Raises ValueError (peft's) where no module has one of the names.
    """
    import peft

    return peft.get_peft_model(model, make_lora_config(plan))


OFFLOAD_DEVICES = ("cpu", "disk")


@dataclass(frozen=True)
class DeviceMap:
    """Modules by device ("0", "cpu", "disk"), and the bytes of weights on each."""

    modules: Mapping[str, str]
    sizes: Mapping[str, int]
    main: str  # the device that computes

    @property
    def offloaded(self) -> tuple[str, ...]:
        """Modules whose weights lie elsewhere than where they compute, and on meta until then."""
        away = [device for device in OFFLOAD_DEVICES if device != self.main]
        return tuple(name for name, device in self.modules.items() if device in away)


def infer_device_map(model: Any, max_memory: Mapping[int | str, str] | None) -> DeviceMap:
    """Return where the layers of a model on meta will be put, as from_pretrained does it."""
    import accelerate

    whole = getattr(model, "_no_split_modules", None) or []
    dtype = next(model.parameters()).dtype
    limits = accelerate.utils.get_balanced_memory(
        model,
        max_memory=dict(max_memory) if max_memory else None,
        no_split_module_classes=list(whole),
        dtype=dtype,
    )
    found = accelerate.infer_auto_device_map(
        model, max_memory=limits, no_split_module_classes=list(whole), dtype=dtype
    )
    modules = {name: str(device) for name, device in found.items()}
    devices = set(modules.values())
    main = next((d for d in sorted(devices) if d not in OFFLOAD_DEVICES), "cpu")
    return DeviceMap(modules, _sizes(model, modules), main)


def _sizes(model: Any, modules: Mapping[str, str]) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for name, parameter in model.named_parameters():  # tied ones come once
        at = name
        while at and at not in modules:
            at = at.rpartition(".")[0]
        sizes[modules.get(at, "")] += parameter.numel() * parameter.element_size()
    return dict(sizes)


def measure_free_memory(device: Any, local_ranks: int, divided: bool = False) -> FreeMemory:
    """Return what is free now for one of `local_ranks` ranks on this node; of all its GPUs together
    where the model is `divided` over them.

    On a GPU that starts CUDA, whose own memory is in use from then on and so no part of the answer.
    """
    import psutil
    import torch

    if device.type == "cuda" and divided:
        each = measure_free_gpus()
        return FreeMemory(f"{len(each)} GPUs", sum(f for f, _ in each), sum(t for _, t in each))
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        name = torch.cuda.get_device_name(device)
        return FreeMemory(f"GPU {device.index or 0} {name}", free, total)
    machine = psutil.virtual_memory()
    free, total = machine.available, machine.total
    group = limits(_own_groups())
    if group.memory is not None and group.memory_free is not None:
        free, total = min(free, group.memory_free), min(total, group.memory)
    share = f", 1 of {local_ranks} ranks" if local_ranks > 1 else ""
    return FreeMemory(f"the CPU{share}", free // local_ranks, total)


def measure_free_gpus() -> list[tuple[int, int]]:
    """Return what is free and what there is of each GPU that this rank sees; starts CUDA on all."""
    import torch

    return [torch.cuda.mem_get_info(index) for index in range(torch.cuda.device_count())]


def _own_groups() -> str:
    """Return the text that names the control groups of this process, "" where there is none."""
    try:
        return Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
