"""A step of a training on tensors without data: what it would hold in memory, and when.

The model is built from its config alone, its forward, backward and optimizer run as they will, with
fake tensors (torch._subclasses.fake_tensor): shapes and dtypes, no bytes. So the count is right for
any architecture that torch can run so, the loss over a large vocabulary and autocast's copies of
weights among it.

The fake tensors say that they are on the CPU, whatever the training will run on: there torch takes
its fused attention for every dtype, as it does on a GPU.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .memory_budget import (
    Budget,
    FreeMemory,
    HeldMemory,
    TrainingPlan,
    add_lora,
    apply_quantization,
    apply_zero_stage,
    estimate_overhead,
    with_optimizer_state,
)


class LiveBytes(TorchDispatchMode):
    """Counts, while it is entered. `at_peak` is called whenever there is more than ever before."""

    def __init__(self, block: int = 1, at_peak: Callable[[], None] = lambda: None) -> None:
        """Round every allocation up to a multiple of `block` bytes."""
        super().__init__()
        self.now = 0
        self.peak = 0
        self._block = block
        self._at_peak = at_peak
        self._alive: dict[int, weakref.ref[Any]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Count a tensor's memory until it is freed; that of a view is counted once."""
        storage = tensor.untyped_storage()
        key = id(storage)  # torch keeps one Python object for a storage, as long as that lives
        if key in self._alive:
            return
        size = self.rounded(storage.nbytes())

        def freed(_: object) -> None:
            del self._alive[key]
            self.now -= size

        self._alive[key] = weakref.ref(storage, freed)
        self.now += size
        if self.now > self.peak:
            self.peak = self.now
            self._at_peak()

    def forget_peak(self) -> None:
        """Look for the peak anew, from what there is now."""
        self.peak = 0

    def rounded(self, size: int) -> int:
        """Return what an allocation of `size` bytes takes."""
        return -(-size // self._block) * self._block

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Do what an operator does, and count what it returns."""
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self.add(tensor)
        return made


def build_outline(config: Any, dtype: str) -> Any:
    """Return the model of a config on the device meta: it has no data and takes no memory."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(config))
    model.tie_weights()
    return model.to(getattr(torch, dtype))


def fill_outline(model: Any) -> Any:
    """Return an outline on the CPU, with whatever data; inside FakeTensorMode with none at all."""
    model.to_empty(device="cpu")
    base = getattr(model, "get_base_model", lambda: model)()  # below peft's adapters
    base.tie_weights()  # what is tied has been made twice
    return model


@contextlib.contextmanager
def take_rows_as_texts() -> Iterator[None]:
    """Let transformers take each row for one text, as it is in a row without padding.

    It looks for several texts in a row by values of position_ids. Fake tensors have none, so it
    would build a whole mask, and attention take another way than in the training.
    """
    masking: Any = importlib.import_module("transformers.masking_utils")
    looks = masking.find_packed_sequence_indices
    masking.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking.find_packed_sequence_indices = looks


CPU_BLOCK, GPU_BLOCK = 1, 512  # bytes that an allocation is a multiple of (CUDACachingAllocator)
STATE_BLOCK = 256  # numbers of an 8-bit optimizer that share a float32 scale
# Numbers; the state of smaller tensors stays in float32 (bitsandbytes, torchao).
SMALLEST_8BIT = 4096


def dry_run(config: Any, plan: TrainingPlan, block: int = CPU_BLOCK) -> HeldMemory:
    """Return what training a model of this config would hold. Reads and writes no weights.

    Raises whatever the model raises where it cannot run without data: code that looks at values.
    """
    model = build_outline(config, plan.weights_dtype)
    if plan.lora_rank:
        model = add_lora(model, plan)
    # Non-fake: the outline on meta, until it is filled.
    with take_rows_as_texts(), FakeTensorMode(allow_non_fake_inputs=True):
        model = fill_outline(model)
        if plan.gradient_checkpointing:
            enable_gradient_checkpointing(model, plan)
        model.train()
        return _DryRun(model, plan, block).run()


def enable_gradient_checkpointing(model: Any, plan: TrainingPlan) -> None:
    """Have the backward pass compute activations again."""
    newer = getattr(model, "activation_checkpointing_enable", None)  # its name from transformers 5
    (newer or model.gradient_checkpointing_enable)({"use_reentrant": False})
    if plan.lora_rank:
        model.enable_input_require_grads()


class _DryRun:
    def __init__(self, model: Any, plan: TrainingPlan, block: int) -> None:
        self._model, self._plan = model, plan
        self._live = LiveBytes(block, self._at_peak)
        self._trained = [p for p in model.parameters() if p.requires_grad]
        # Of one parameter: what it does to another is the same, and takes a dozen operators each.
        self._largest = max(self._trained, key=torch.Tensor.numel)
        self._optimizer = _make_optimizer(self._largest, plan)
        self._states: list[Any] = []
        self._gradients = self._state = 0
        self._moment = ""
        self._peak: tuple[int, int, str] = (0, 0, "")

    def run(self) -> HeldMemory:
        """Do it."""
        for tensor in (*self._model.parameters(), *self._model.buffers()):
            self._live.add(tensor)
        for parameter in self._trained:
            parameter.register_post_accumulate_grad_hook(self._has_gradient)
        with self._live:
            self._make_state()
            self._batch()
        return self._held()

    def _make_state(self) -> None:
        """Make the optimizer's state, which is there from the second step on.

        Where batches are added up, gradients are there as well while the later ones are computed.
        What a step itself needs for a moment is not counted: fused, it works in place.
        """
        for parameter in self._trained:
            parameter.grad = torch.empty_like(parameter)
        self._optimizer.step()
        made = self._optimizer.state[self._largest]
        own = [value for value in made.values() if isinstance(value, torch.Tensor)]
        for parameter in self._trained:
            if parameter is not self._largest:
                self._states += [_empty_state_like(one, self._largest, parameter) for one in own]
        self._states += own
        self._state = sum(self._live.rounded(_bytes(one)) for one in self._states)
        self._gradients = self._full_gradients()
        if self._plan.accumulation == 1:
            for parameter in self._trained:
                parameter.grad = None
            self._gradients = 0
        self._live.forget_peak()

    def _batch(self) -> None:
        plan = self._plan
        self._moment = "in forward"
        ids = torch.zeros((plan.batch_size, plan.length), dtype=torch.long)
        computes = getattr(torch, plan.precision.computes)
        with torch.autocast("cpu", computes, enabled=plan.precision.autocast):
            out = self._model(input_ids=ids, labels=ids, use_cache=False)
        if plan.precision.autocast:
            out["logits"] = out["logits"].float()  # as accelerate's prepare_model does
        loss = out["loss"]
        del out
        self._moment = "in backward"
        loss.backward()

    def _has_gradient(self, parameter: torch.Tensor) -> None:
        if self._plan.accumulation == 1:
            self._gradients += self._live.rounded(_bytes(parameter.grad))

    def _full_gradients(self) -> int:
        return sum(self._live.rounded(_bytes(p)) for p in self._trained)

    def _at_peak(self) -> None:
        self._peak = (self._gradients, self._state, self._moment)

    def _held(self) -> HeldMemory:
        frozen: Counter[str] = Counter()
        lora = 0
        for name, parameter in self._model.named_parameters():  # tied ones come once
            size = self._live.rounded(_bytes(parameter))
            if "lora_" in name:
                lora += size
            else:
                frozen[str(parameter.dtype).removeprefix("torch.")] += size
        gradients, optimizer, moment = self._peak
        held = HeldMemory(
            weights=dict(frozen),
            lora=lora,
            trained=sum(p.numel() for p in self._trained),
            gradients=self._full_gradients(),
            optimizer=self._state,
            buffers=sum(self._live.rounded(_bytes(b)) for b in self._model.buffers()),
            peak=self._live.peak,
            gradients_at_peak=gradients,
            optimizer_at_peak=optimizer,
            moment=moment,
        )
        if self._plan.optimizer == "adamw-8bit":
            held = with_optimizer_state(held, optimizer=sum(map(_eight_bit_state, self._trained)))
        if self._plan.quantization != "off":
            held = apply_quantization(held, self._model, self._plan)
        return held


def _make_optimizer(parameter: Any, plan: TrainingPlan) -> Any:
    if plan.optimizer == "sgd":
        return torch.optim.SGD([parameter], lr=1e-3, foreach=False)
    return torch.optim.AdamW([parameter], lr=1e-3, foreach=False)


def _empty_state_like(state: Any, of: Any, parameter: Any) -> Any:
    """Return another parameter's state: of that one's shape, or of none (a count of steps)."""
    return torch.empty_like(parameter if state.shape == of.shape else state, dtype=state.dtype)


def _eight_bit_state(parameter: torch.Tensor) -> int:
    """Return the bytes of AdamW's two states for a tensor, in 8 bits where it is large enough."""
    count: int = parameter.numel()
    if count < SMALLEST_8BIT:
        return 2 * 4 * count
    return 2 * (count + 4 * math.ceil(count / STATE_BLOCK))


def _bytes(tensor: Any) -> int:
    size: int = tensor.numel() * tensor.element_size()
    return size


def estimate_budget(config: Any, plan: TrainingPlan, free: FreeMemory, on_gpu: bool) -> Budget:
    """Return the budget of one rank. Raises what the model raises where it cannot run dry."""
    held = apply_zero_stage(dry_run(config, plan, GPU_BLOCK if on_gpu else CPU_BLOCK), plan)
    return Budget(plan, free, held, estimate_overhead(held, plan, on_gpu))


def add_other_activations(config: Any, budget: Budget, on_gpu: bool) -> Budget:
    """Return the budget with what activations take if gradient checkpointing is turned round."""
    other = replace(budget.plan, gradient_checkpointing=not budget.plan.gradient_checkpointing)
    found = estimate_budget(config, other, budget.free, on_gpu)
    return replace(budget, other_activations=found.held.activations)
