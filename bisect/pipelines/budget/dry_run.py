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

import math
from collections import Counter
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from .adapters import with_lora
from .held import Held
from .live_bytes import LiveBytes
from .outline import filled, outline, texts_unpacked
from .plan import TrainingPlan
from .quantized import quantized_bytes, shrunk

CPU_BLOCK, GPU_BLOCK = 1, 512  # bytes that an allocation is a multiple of (CUDACachingAllocator)
STATE_BLOCK = 256  # numbers of an 8-bit optimizer that share a float32 scale
SMALLEST_8BIT = (
    4096  # numbers; the state of smaller tensors stays in float32 (bitsandbytes, torchao)
)


def dry_run(config: Any, plan: TrainingPlan, block: int = CPU_BLOCK) -> Held:
    """Return what training a model of this config would hold. Reads and writes no weights.

    Raises whatever the model raises where it cannot run without data: code that looks at values.
    """
    model = outline(config, plan.weights_dtype)
    if plan.lora_rank:
        model = with_lora(model, plan)
    # Non-fake: the outline on meta, until it is filled.
    with texts_unpacked(), FakeTensorMode(allow_non_fake_inputs=True):
        model = filled(model)
        if plan.gradient_checkpointing:
            checkpoint_gradients(model, plan)
        model.train()
        return _DryRun(model, plan, block).run()


def checkpoint_gradients(model: Any, plan: TrainingPlan) -> None:
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
        self._optimizer = _optimizer(self._largest, plan)
        self._states: list[Any] = []
        self._gradients = self._state = 0
        self._moment = ""
        self._peak: tuple[int, int, str] = (0, 0, "")

    def run(self) -> Held:
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
                self._states += [_like(one, self._largest, parameter) for one in own]
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

    def _held(self) -> Held:
        frozen: Counter[str] = Counter()
        lora = 0
        for name, parameter in self._model.named_parameters():  # tied ones come once
            size = self._live.rounded(_bytes(parameter))
            if "lora_" in name:
                lora += size
            else:
                frozen[str(parameter.dtype).removeprefix("torch.")] += size
        gradients, optimizer, moment = self._peak
        held = Held(
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
            held = shrunk(held, optimizer=sum(map(_eight_bit_state, self._trained)))
        if self._plan.quantization != "off":
            held = quantized_bytes(held, self._model, self._plan)
        return held


def _optimizer(parameter: Any, plan: TrainingPlan) -> Any:
    if plan.optimizer == "sgd":
        return torch.optim.SGD([parameter], lr=1e-3, foreach=False)
    return torch.optim.AdamW([parameter], lr=1e-3, foreach=False)


def _like(state: Any, of: Any, parameter: Any) -> Any:
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
