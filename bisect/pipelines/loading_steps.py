"""Steps 5 and 6: the weights are loaded, shard by shard; then where they lie, on which device or
offloaded to where, and what has to come from elsewhere for each token.

That all shards are read is not the end: from_pretrained then places what it read and, where no
generation config was given to it, looks that up.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..base.errors import UsageError
from ..base.lazy_dataclass import dataclass
from ..base.words import format_bytes, format_count, format_duration
from . import generation_plan
from .forecast import OffloadLink, format_memory_in_use, measure_gpus
from .generation_plan import (
    CheckpointFiles,
    LoadingProgress,
    find_cached_checkpoint,
    loading_options,
)
from .model_steps import asking_the_hub, find_device

if TYPE_CHECKING:
    from ..rank.walk import Context
    from .generation_plan import LoadingPlan


def quantization_options(context: Context) -> dict[str, Any]:
    """Return the options of from_pretrained for --quantization, none where it is off.

    Raises UsageError where no library for it is installed.
    """
    if context.args.quantization == "off":
        return {}
    module = next((name for name in _CONFIGS if _is_installed(name)), None)
    if module is None:
        raise UsageError(
            f"--quantization on needs one of {', '.join(_CONFIGS)}, and none is installed",
            "pip install bitsandbytes",
        )
    library, transformers = context.imports(module), context.imports("transformers")
    context.say(f"Quantization: weights in 8 bits, by {module}")
    return {"quantization_config": _CONFIGS[module](transformers, library)}


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


_CONFIGS: dict[str, Callable[[Any, Any], Any]] = {
    "bitsandbytes": lambda transformers, _: transformers.BitsAndBytesConfig(load_in_8bit=True),
    "torchao.quantization": lambda transformers, torchao: transformers.TorchAoConfig(
        torchao.Int8WeightOnlyConfig()
    ),
    "optimum.quanto": lambda transformers, _: transformers.QuantoConfig(weights="int8"),
}


_REST = "it places the weights and looks up the generation config"
_LINE_EVERY = 1.0  # seconds between two lines; the last one always comes


@contextlib.contextmanager
def announce_shards(context: Context, planned: LoadingPlan, transformers: Any) -> Iterator[None]:
    """Tell which shards are read while from_pretrained runs: its progress bar is made by us."""
    hook = getattr(transformers.utils.logging, "set_tqdm_hook", None)
    if hook is None:  # transformers before 5: its bar tells it
        yield
        return

    def bar(factory: Any, args: tuple[Any, ...], words: dict[str, Any]) -> Any:
        if args and str(words.get("desc", "")).startswith("Loading"):
            return _ShardBar(
                args[0],
                context,
                planned.checkpoint or find_cached_checkpoint(planned.name, context),
            )
        return factory(*args, **words)

    before = hook(bar)
    try:
        yield
    finally:
        hook(before)


class _ShardBar:
    """What transformers iterates over as it loads, in the place of its own progress bar."""

    def __init__(
        self, items: Iterable[Any], context: Context, checkpoint: CheckpointFiles | None
    ) -> None:
        self._items = list(items)
        self._context = context
        self._progress = LoadingProgress(
            checkpoint or CheckpointFiles({"": 0}, {}), len(self._items)
        )

    def __iter__(self) -> Iterator[Any]:
        context, progress = self._context, self._progress
        context.phase("shards")
        began = said = time.monotonic()
        for item in self._items:
            yield item  # when the next one is wanted, this one has been read
            complete = progress.read(item[0] if isinstance(item, tuple) else None)
            context.pulse(progress.done)
            now = time.monotonic()
            if complete and now - said > _LINE_EVERY and progress.done < progress.total:
                said = now
                context.say(progress.in_words(now - began))
        context.say(progress.in_words(time.monotonic() - began))
        context.phase("after_shards")
        context.say(f"All shards are read, and from_pretrained has not returned: {_REST}")


_OFFLOAD = "cpu-offload"


def weights(context: Context) -> Any:
    """Return the model, with its weights where --device-map wants them."""
    args, planned = context.args, context.products["plan"]
    transformers = context.imports("transformers")
    if args.device_map != "none":
        _import_accelerate(context)
    options = {
        **planned.options,
        **_placing_options(context, planned),
        **quantization_options(context),
    }
    context.phase("files")
    with asking_the_hub("weights", args.model, context):
        options |= loading_options(context)
        words = f" with {planned.name}, device map {args.device_map}"
        context.about_to("transformers.AutoModelForCausalLM.from_pretrained", words)
        began = time.monotonic()
        with announce_shards(context, planned, transformers):
            model = transformers.AutoModelForCausalLM.from_pretrained(
                planned.name, local_files_only=args.local_files_only, **options
            )
    seconds = time.monotonic() - began
    context.say(f"from_pretrained returned {type(model).__name__} after {format_duration(seconds)}")
    _move_model(model, context)
    if not planned.on_hub:
        context.not_exercised.append("the hub (no model by name)")
    return model


def _import_accelerate(context: Context) -> None:
    try:
        context.imports("accelerate")
    except ModuleNotFoundError:
        raise UsageError(
            f"--device-map {context.args.device_map} needs accelerate, and it is not installed",
            "pip install accelerate, or --device-map none",
        ) from None


def _placing_options(context: Context, planned: LoadingPlan) -> dict[str, Any]:
    """Return the options of from_pretrained that say where weights go."""
    args = context.args
    if args.device_map != "auto":
        return {}
    placing: dict[str, Any] = {"device_map": "auto", "offload_folder": planned.folder}
    return placing | ({"max_memory": dict(args.max_memory)} if args.max_memory else {})


def _move_model(model: Any, context: Context) -> None:
    """Move a model that has not been placed while it was loaded."""
    device, args = find_device(context), context.args
    if device.type == "cuda":
        context.imports("torch").cuda.set_device(device)
    if args.device_map == _OFFLOAD:
        context.about_to("accelerate.cpu_offload", f", for {device}")
        context.imports("accelerate").cpu_offload(model, execution_device=device)
    elif args.device_map == "none" and args.quantization == "off" and device.type == "cuda":
        context.about_to(f"transformers.{type(model).__name__}.to", f" {device}")
        model.to(device)


META = "meta"
_NAMES_SHOWN = 3


@dataclass(frozen=True)
class Parameter:
    name: str
    bytes: int
    device: str  # as torch names it: "cuda:0", "cpu", "meta"
    kept: str  # where its values are: its device, or "cpu" or "disk" if it is offloaded


@dataclass(frozen=True)
class Placement:
    """Parameters by where their values are, in bytes; those that come to a device only when it is
    their turn (`offloaded`), by where they wait.
    """

    parameters: int
    bytes: Mapping[str, int]
    offloaded: Mapping[str, int] = field(default_factory=dict)
    names: Sequence[str] = ()  # modules of what is offloaded
    offloaded_parameters: int = 0
    on_meta: int = 0

    @property
    def total(self) -> int:
        return sum(self.bytes.values())


def locate_values(name: str, device: str, device_map: Mapping[str, str]) -> str:
    """Return where the values of a parameter are: where its module was mapped to, if it is on meta,
    else its own device. `device_map` is by module, "" for all; what it does not name is on the CPU.
    """
    if device != META:
        return device
    inside = [module for module in device_map if _is_inside(name, module)]
    return device_map[max(inside, key=len)] if inside else "cpu"


def locate_parameters(parameters: Iterable[Parameter]) -> Placement:
    """Return where the parameters lie, all together."""
    everything = list(parameters)
    offloaded = [one for one in everything if one.device == META and one.kept != META]
    by_device: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for one in everything:
        by_device[one.kept] += one.bytes
    for one in offloaded:
        waiting[one.kept] += one.bytes
    return Placement(
        parameters=len(everything),
        bytes=dict(by_device),
        offloaded=dict(waiting),
        names=tuple(dict.fromkeys(_layer_of(one.name) for one in offloaded)),
        offloaded_parameters=len(offloaded),
        on_meta=sum(one.device == META for one in everything),
    )


def format_placement(placement: Placement) -> list[str]:
    """Return a line on what lies where, and one on what is offloaded, if anything is."""
    where = ", ".join(
        f"{format_bytes(number)} on {device}" for device, number in placement.bytes.items()
    )
    lines = [f"Parameters: {placement.parameters}, {format_bytes(placement.total)}: {where}"]
    if placement.offloaded:
        amount = sum(placement.offloaded.values())
        to = " and ".join(sorted(placement.offloaded))
        lines.append(
            f"Offloaded to {to}: {placement.offloaded_parameters} parameters, "
            f"{format_bytes(amount)} ({shorten_names(placement.names)}). "
            f"{format_count(placement.on_meta, 'parameter')} on the device meta: expected with "
            "offload, no error"
        )
    return lines


def shorten_names(names: Sequence[str]) -> str:
    """Return a few of the names, and how many more there are."""
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown


def _is_inside(name: str, module: str) -> bool:
    return module == "" or name == module or name.startswith(f"{module}.")


def _layer_of(name: str) -> str:
    """Return the layer that a parameter belongs to: "model.layers.3" of its many."""
    parts = name.split(".")
    numbered = [at for at, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbered[0] + 1] if numbered else parts[:-1]) or name


_MODULES_SHOWN = 4  # modules of a device map


@dataclass(frozen=True)
class PlacementAndLinks:
    """Where the parameters are, and what has to come from elsewhere for each token."""

    placement: Placement
    links: Sequence[OffloadLink]


def placement(context: Context) -> PlacementAndLinks:
    """Say where the parameters are, and the memory of each GPU; return where they are."""
    model = context.products["weights"]
    given = getattr(model, "hf_device_map", None) or {}
    device_map = {  # accelerate's 0 is cuda:0
        module: f"cuda:{device}" if isinstance(device, int) else str(device)
        for module, device in given.items()
    }
    for module, device in list(device_map.items())[:_MODULES_SHOWN]:
        context.say(f"Device map: {module or 'all of it'} on {device}")
    if len(device_map) > _MODULES_SHOWN:
        context.say(f"Device map: {len(device_map) - _MODULES_SHOWN} more modules, by device below")
    found = locate_parameters(
        Parameter(
            name=name,
            bytes=one.numel() * one.element_size(),
            device=str(one.device),
            kept=locate_values(name, str(one.device), device_map),
        )
        for name, one in model.named_parameters()
    )
    for line in [*format_placement(found), *format_memory_in_use(context)]:
        context.say(line)
    if not measure_gpus(context.imports("torch")):
        context.not_exercised.append("a GPU")
    return PlacementAndLinks(found, _measure_links(found, context))


def _measure_links(found: Placement, context: Context) -> list[OffloadLink]:
    """Return what must come from elsewhere for each token, at rates that are measured now."""
    torch, planned = context.imports("torch"), context.products["plan"]
    links = []
    device = find_device(context)
    for source, number in found.offloaded.items():
        if source == "disk":
            speed = (
                generation_plan.measure_read_rate(_find_offload_files(planned))
                or planned.bytes_a_second
            )
        else:
            speed = generation_plan.measure_copy_rate(torch, device)
        if speed:
            links.append(OffloadLink(source, number, speed))
    return links


def _find_offload_files(planned: Any) -> list[str]:
    """Return the files that offloaded weights are read from: their own, else the checkpoint's."""
    own = [entry.path for entry in os.scandir(planned.folder) if entry.is_file()]
    if own or planned.checkpoint is None:
        return sorted(own)
    return [os.path.join(planned.source, name) for name in planned.checkpoint.files]
