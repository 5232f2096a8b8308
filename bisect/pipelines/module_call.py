"""One call of the module: a forward and a backward, how long they take and how much memory, and how
much its output differs from what the same input gave before.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..base.errors import UsageError
from ..base.lazy_dataclass import dataclass
from ..captures.capture_file import fields_as_dict
from ..captures.reading import Unreadable
from .module_inputs import ModuleInput, TokenPlaces, Turn
from .module_steps import ReadyModule
from .replay_inputs import load_earlier_output

if TYPE_CHECKING:
    from ..rank.walk import Context


@dataclass(frozen=True)
class TensorDifference:
    """Of tensors in both. `largest`: inf where one alone has a number, None without any."""

    largest: float | None = None
    where: str = ""  # the tensor with the largest
    apart: tuple[str, ...] = ()  # tensors of other shapes, or in one of them alone


def compare_outputs(
    now: Any, before: Any, here: TokenPlaces | None = None, there: TokenPlaces | None = None
) -> TensorDifference:
    """Return the largest absolute difference of two outputs, tensor by tensor of the same name.
    `here` and `there`: where the tokens of their inputs were, if these were packed and unpacked.
    """
    ours, theirs = dict(walk_tensors(now)), dict(walk_tensors(before))
    both = [name for name in ours if name in theirs]
    apart = [name for name in (*ours, *theirs) if (name in ours) != (name in theirs)]
    largest, where = None, ""
    for name in both:
        one, other = ours[name], theirs[name]
        if here is not None and there is not None and one.shape != other.shape:
            one, other = here.of(one), there.of(other)
        if one.shape != other.shape:
            apart.append(name)
            continue
        found = _largest_difference(one, other)
        if largest is None or found > largest:
            largest, where = found, name
    return TensorDifference(largest, where, tuple(apart))


def walk_tensors(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and tensor of all in a nested output: "logits", "hidden_states.0"."""
    value = fields_as_dict(value)
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from walk_tensors(one, f"{path}.{key}".strip("."))
    elif isinstance(value, list | tuple):
        for place, one in enumerate(value):
            yield from walk_tensors(one, f"{path}.{place}".strip("."))


def _largest_difference(one: Any, other: Any) -> float:
    if not one.numel():
        return 0.0
    first, second = (_with_digits(tensor) for tensor in (one, other))
    apart = (first - second).abs_()
    largest = float(apart.max())
    if math.isfinite(largest):
        return largest
    # Equal numbers of which no difference can be had: infinities of one sign, and NaN in both.
    apart[(first == second) | (first.isnan() & second.isnan())] = 0.0
    return float(apart.nan_to_num(nan=math.inf, posinf=math.inf).max())


def _with_digits(tensor: Any) -> Any:
    """Return a tensor on the CPU, in a dtype that rounds no difference away."""
    wide = tensor.dtype in (torch.float32, torch.float64)
    dtype = tensor.dtype if wide else torch.float64
    return tensor.detach().to("cpu", dtype)


class OutputComparer:
    """Compares output by output; tells once what cannot be compared."""

    def __init__(self, context: Context) -> None:
        """Compare with what was captured, or with --outputs."""
        self._context = context
        self._told: set[str] = set()

    def difference(self, turn: Turn, output: Any) -> TensorDifference | None:
        """Return how an output differs from what the same input gave before, None if unknown."""
        context, folder = self._context, self._context.args.outputs
        if turn.made and not folder:
            return None
        try:
            known = load_earlier_output(turn.path, folder)
        except Unreadable as error:
            context.say(f"Not compared: {error}")
            return None
        if known is None:
            if folder:
                self._once("missing", f"Not compared: {folder} has no outputs of {turn.given.name}")
            return None
        if known.record.raised:
            raised = known.record.raised[:200]
            context.say(f"{turn.given.name}: its forward raised {raised} before")
            return None
        found = compare_outputs(output, known.value, turn.given.here, turn.given.there)
        if found.apart:
            self._once("apart", f"{turn.given.name}: not compared, for {explain_apart(found)}")
        return found

    def _once(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._context.say(text)


def describe_excess(found: TensorDifference | None, tolerance: float | None) -> str | None:
    """Return that a difference is above the tolerance or cannot be told; None if neither."""
    if found is None or tolerance is None:
        return None
    if found.largest is None:
        if not found.apart:
            return None
        return f"cannot be compared, for {explain_apart(found)}"
    if found.largest <= tolerance:
        return None
    return (
        f"differs by {found.largest:g} in {found.where or 'its output'}, more "
        f"than --tolerance {tolerance:g}"
    )


def explain_apart(found: TensorDifference) -> str:
    """Return why tensors were not compared."""
    names = ", ".join(name or "the output" for name in found.apart[:3])
    return f"it is of another shape, or in one of the two outputs alone: {names}"


@dataclass
class CallResult:
    """What came of it; as far as it came, if it raised."""

    output: Any = None
    forward_s: float = 0.0
    backward_s: float | None = None
    memory_bytes: int = 0


def call_module(
    ready: ReadyModule,
    given: ModuleInput,
    backward: bool,
    into: CallResult,
    begins: Callable[[str], None],
) -> None:
    """Call the module, and write into `into` what comes of it. `begins` is told "forward" and
    "backward". Raises what the module does.
    """
    on_gpu = ready.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(ready.device)
    if ready.module.training != given.training:  # it visits each module in it
        ready.module.train(given.training)
    begins("forward")
    with torch.set_grad_enabled(given.grad or backward), ready.attending():
        began = _now(on_gpu)
        try:
            into.output = ready.call(*given.args, **given.kwargs)
        finally:
            into.forward_s = _now(on_gpu) - began
            into.memory_bytes = _peak_bytes(ready.device)
    if backward:
        loss = find_loss(into.output)
        begins("backward")
        began = _now(on_gpu)
        try:
            ready.backward(loss)
        finally:
            into.backward_s = _now(on_gpu) - began
            into.memory_bytes = _peak_bytes(ready.device)
            ready.module.zero_grad(set_to_none=True)


def find_loss(output: Any) -> Any:
    """Return what a backward pass begins with: the loss, or the sum of the means of all that has a
    gradient. Raises UsageError where nothing has one.
    """
    found = dict(walk_tensors(output))
    own = found.get("loss")
    if own is not None and own.requires_grad and own.numel() == 1:
        return own
    parts = [value.float().mean() for value in found.values() if value.requires_grad]
    if not parts:
        raise UsageError(
            "--backward: nothing that the module returned has a gradient",
            "Leave it out, or build a module with parameters that are trained, whose forward is "
            "not under torch.no_grad.",
        )
    return sum(parts[1:], parts[0])


def _now(on_gpu: bool) -> float:
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter()


def _peak_bytes(device: Any) -> int:
    """Return the most bytes in use: of the GPU since the forward began, else of the process ever
    (ru_maxrss is in units of 1024, getrusage(2)).
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
