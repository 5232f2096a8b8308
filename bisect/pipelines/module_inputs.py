"""The inputs of a replay as the module gets them, turn by turn: read from a capture or made from
the module's signature, packed or unpacked, on its device.

Packed: all samples in one row, of shape (1, tokens), whose position_ids begin again at each
sample. Unpacked: input_ids and attention_mask of shape (samples, length). The names are
transformers'; what else has a value for each token goes along.

In an input that is made, tokens are counted from 0 within the module's first embedding; anything
else that the first layer takes is normally distributed, the same each time: outputs of two runs
can be compared. What cannot be guessed is named.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from ..base.errors import UsageError
from ..base.lazy_dataclass import dataclass
from ..captures.capture_file import INPUTS, NotKept
from ..captures.reading import CapturedCall, Unreadable, load
from .module_steps import ReadyModule
from .replay_inputs import MADE_INPUT, ChosenInputs
from .shared_steps import IGNORED

if TYPE_CHECKING:
    from ..rank.walk import Context


_IDS, _MASK, _POSITIONS, _LABELS = "input_ids", "attention_mask", "position_ids", "labels"
# What says where samples end; made anew from position_ids by transformers.
_ENDS = (
    *("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"),
    "packed_seq_lens",
)


@dataclass(frozen=True)
class TokenPlaces:
    """Where the tokens of all samples are, in their order: in these rows, at these places."""

    shape: tuple[int, ...]  # (rows, length)
    rows: Any
    places: Any

    def of(self, value: Any) -> Any:
        """Return of a tensor of shape (rows, length, ...) the part of each token, (tokens, ...);
        of any other the tensor itself.
        """
        if tuple(value.shape[:2]) != self.shape:
            return value
        return value[self.rows.to(value.device), self.places.to(value.device)]


def find_tokens(kwargs: Mapping[str, Any]) -> TokenPlaces | None:
    """Return where the tokens of an input are, None where it is none that has any."""
    ids, mask = kwargs.get(_IDS), kwargs.get(_MASK)
    if not (isinstance(ids, torch.Tensor) and ids.dim() == 2):
        return None
    if not (isinstance(mask, torch.Tensor) and mask.shape == ids.shape):
        mask = torch.ones_like(ids)
    rows, places = mask.nonzero(as_tuple=True)
    return TokenPlaces(tuple(ids.shape), rows, places)


def pack_samples(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the input with all samples in one row, None if it cannot be or is so already."""
    found = find_tokens(kwargs)
    if found is None or found.shape[0] < 2:
        return None
    made = {
        name: found.of(value).unsqueeze(0) if _is_by_token(value, found) else value
        for name, value in kwargs.items()
        if name not in (_MASK, _POSITIONS, *_ENDS)
    }
    lengths = torch.bincount(found.rows, minlength=found.shape[0])
    positions = torch.cat([torch.arange(int(n)) for n in lengths])
    made[_POSITIONS] = positions.unsqueeze(0).to(kwargs[_IDS].device)
    if _LABELS in made:  # no sample's first token is foretold by the one before it
        made[_LABELS] = made[_LABELS].masked_fill(made[_POSITIONS] == 0, IGNORED)
    return made


def unpack_samples(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the input with a row for each sample, padded at the end; None as `pack_samples`."""
    lengths = _find_lengths(kwargs)
    if lengths is None or len(lengths) < 2:
        return None
    found = find_tokens(kwargs)
    made: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in (_MASK, _POSITIONS, *_ENDS):
            continue
        made[name] = value
        if found is not None and _is_by_token(value, found):
            parts = torch.split(value[0], lengths)
            filling = IGNORED if name == _LABELS else 0
            made[name] = torch.nn.utils.rnn.pad_sequence(parts, True, filling)
    made[_MASK] = torch.nn.utils.rnn.pad_sequence(
        [torch.ones(n, dtype=torch.long) for n in lengths], True
    ).to(kwargs[_IDS].device)
    return made


def _is_by_token(value: Any, found: TokenPlaces) -> bool:
    return isinstance(value, torch.Tensor) and tuple(value.shape[:2]) == found.shape


def _find_lengths(kwargs: Mapping[str, Any]) -> list[int] | None:
    """Return how long the samples of a packed row are, None if it is none."""
    ids, positions = kwargs.get(_IDS), kwargs.get(_POSITIONS)
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.shape[0] != 1:
        return None
    if not isinstance(positions, torch.Tensor) or positions.shape != ids.shape:
        return None
    begins = (positions[0] == 0).nonzero().flatten().tolist()
    if begins[:1] != [0]:
        return None
    return [end - begin for begin, end in pairwise([*begins, ids.shape[1]])]


@dataclass(frozen=True)
class ModuleInput:
    """What a forward is called with."""

    name: str  # of the file, without what all of them end in
    rank: int  # on which it was captured
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    training: bool  # the module's mode
    grad: bool  # gradients are kept
    left_out: tuple[str, ...] = ()  # arguments that could not be kept, "name (class)"
    here: TokenPlaces | None = None  # where its tokens are, if it was packed or unpacked
    there: TokenPlaces | None = None  # and where they were

    @property
    def tokens(self) -> int:
        """How many there are, without padding; 0 where nothing in it tells."""
        values = (*self.kwargs.values(), *self.args)
        mask = self.kwargs.get("attention_mask")
        if isinstance(mask, torch.Tensor) and mask.dim() == 2 and not mask.is_floating_point():
            return int(mask.sum())
        for value in values:
            if isinstance(value, torch.Tensor) and value.dim() == 2 and _is_whole(value):
                return int(value.numel())
        for value in values:
            if isinstance(value, torch.Tensor) and value.dim() == 3:
                return int(value.shape[0] * value.shape[1])
        return 0


def read_input(path: str) -> ModuleInput:
    """Return what a capture holds. Raises Unreadable, also where something was not kept that cannot
    be left out: a positional argument, a part of any.
    """
    found = load(path)
    args, kwargs = found.value
    left_out = {name: value for name, value in kwargs.items() if isinstance(value, NotKept)}
    inside = {name: value for name, value in kwargs.items() if name not in left_out}
    for name, value in (*enumerate(args), *inside.items()):
        for lost in _find_not_kept(value):
            raise Unreadable(path, f"its argument {name} has a {lost.what}, which was not kept")
    return ModuleInput(
        name=os.path.basename(path).removesuffix(INPUTS),
        rank=found.record.rank,
        args=args,
        kwargs=inside,
        training=found.record.training,
        grad=found.record.grad,
        left_out=tuple(f"{name} ({value.what})" for name, value in left_out.items()),
    )


def _find_not_kept(value: Any) -> Iterator[NotKept]:
    if isinstance(value, NotKept):
        yield value
    elif isinstance(value, list | tuple):
        yield from (lost for one in value for lost in _find_not_kept(one))
    elif isinstance(value, Mapping):
        yield from (lost for one in value.values() for lost in _find_not_kept(one))


def apply_packing(given: ModuleInput, packing: str, module: Any) -> ModuleInput:
    """Return the input with its samples packed ("on") or unpacked ("off"), where it can be."""
    change = {"on": pack_samples, "off": unpack_samples}.get(packing)
    made = change(given.kwargs) if change and not given.args else None
    if made is None:
        return given
    if "use_cache" in inspect.signature(module.forward).parameters:
        made["use_cache"] = False  # with a cache transformers looks for no samples in a row
    return replace(given, kwargs=made, here=find_tokens(made), there=find_tokens(given.kwargs))


def move_input(given: ModuleInput, device: Any, dtype: Any) -> ModuleInput:
    """Return the input with its tensors on `device`; those of no whole numbers in `dtype`, unless
    that is None.
    """

    def moved(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(device, dtype if value.is_floating_point() else None)
        if isinstance(value, list | tuple):
            return type(value)(moved(one) for one in value)
        if isinstance(value, Mapping):
            return {name: moved(one) for name, one in value.items()}
        return value

    return replace(given, args=moved(given.args), kwargs=moved(given.kwargs))


def _is_whole(value: Any) -> bool:
    return not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)


_TOKEN_PARAMETERS = (
    "input_ids",
    "decoder_input_ids",
    "sequences",
    "tokens",
    "token_ids",
    "ids",
    "idx",
)
_MASK_PARAMETERS = ("attention_mask",)
_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def make_input(module: Any, rows: int, length: int, torch: Any) -> dict[str, Any]:
    """Return keyword arguments for `module.forward`: `rows` of `length` tokens, or of what the
    first layer takes. Raises ValueError, which names the parameter that cannot be guessed.
    """
    parameters = inspect.signature(module.forward).parameters.values()
    named = [one for one in parameters if one.kind in _NAMED_KINDS]
    if any(one.kind is inspect.Parameter.POSITIONAL_ONLY for one in parameters):
        raise ValueError("its forward takes arguments by position alone")
    wanted = [one.name for one in named if one.default is inspect.Parameter.empty]
    main = getattr(module, "main_input_name", None)  # transformers'
    known = [one.name for one in named if one.name in (main, *_TOKEN_PARAMETERS)]
    if not wanted:
        wanted = known[:1] or [one.name for one in named[:1]]
    if not wanted:
        return {}
    wanted += [one.name for one in named if one.name in _MASK_PARAMETERS and one.name not in wanted]
    made: dict[str, Any] = {}
    for name in wanted:
        made[name] = _make_value(name, module, rows, length, first=not made, torch=torch)
    return made


def _make_value(name: str, module: Any, rows: int, length: int, first: bool, torch: Any) -> Any:
    if name in _MASK_PARAMETERS:
        return torch.ones(rows, length, dtype=torch.long)
    if name in _TOKEN_PARAMETERS or (first and _first_layer(module, torch)[0] == "tokens"):
        return _make_tokens(_first_layer(module, torch)[1], rows, length, torch)
    if not first:
        raise ValueError(f"its forward takes {name!r} as well, which cannot be guessed")
    kind, wide = _first_layer(module, torch)
    same = torch.Generator().manual_seed(0)
    if kind == "image":
        return torch.randn(rows, wide, *[length] * 2, generator=same)
    if kind == "signal":
        return torch.randn(rows, wide, length, generator=same)
    if kind == "features":
        return torch.randn(rows, length, wide, generator=same)
    raise ValueError(f"no layer of its own tells what {name!r} is")


def _make_tokens(vocabulary: int, rows: int, length: int, torch: Any) -> Any:
    counted = torch.arange(rows * length, dtype=torch.long) % max(1, vocabulary)
    return counted.reshape(rows, length)


def _first_layer(module: Any, torch: Any) -> tuple[str, int]:
    """Return what the first layer takes, and how wide that is."""
    nn = torch.nn
    for layer in module.modules():
        if isinstance(layer, nn.Embedding):
            return "tokens", layer.num_embeddings
        if isinstance(layer, nn.Linear):
            return "features", layer.in_features
        if isinstance(layer, nn.Conv2d):
            return "image", layer.in_channels
        if isinstance(layer, nn.Conv1d):
            return "signal", layer.in_channels
        if isinstance(layer, nn.RNNBase):
            return "features", layer.input_size
        if isinstance(layer, nn.LayerNorm):
            return "features", layer.normalized_shape[-1]
    return "", 0


@dataclass(frozen=True)
class Turn:
    """One forward."""

    number: int  # from 1
    given: ModuleInput
    path: str  # of its file; of one that was made its name
    counts: bool = True  # False: it is done for the other ranks' sake, and was done before

    @property
    def made(self) -> bool:
        """Whether no job's forward was called with it."""
        return self.path == MADE_INPUT


def iterate_turns(chosen: ChosenInputs, ready: ReadyModule, context: Context) -> Iterator[Turn]:
    """Yield what a rank calls the module with, in order. One that cannot be read is left out; with
    several ranks another stands in for it, for they come to its collectives. Raises UsageError
    where an input is to be made and cannot be, and where none can be read.
    """
    if not chosen.calls:
        made = move_input(_make_own_input(ready, context), ready.device, ready.dtype)
        yield Turn(1, made, MADE_INPUT)
        return
    reader = _Reader(ready, context)
    stands_in: Turn | None = None
    for number in range(1, chosen.forwards + 1):
        call = chosen.calls[(number - 1) % len(chosen.calls)]
        given = reader.read(call)
        if given is not None:
            stands_in = Turn(number, given, call.path, counts=number <= len(chosen.calls))
            yield stands_in
        elif context.place.world_size > 1:
            found = stands_in or reader.first_of(chosen.calls)
            yield Turn(number, found.given, found.path, counts=False)
    if stands_in is None:
        raise reader.none_read()


class _Reader:
    """Reads captures, and tells of each that cannot be read once."""

    def __init__(self, ready: ReadyModule, context: Context) -> None:
        self._ready = ready
        self._context = context
        self._unreadable: dict[str, Unreadable] = {}
        self._told_left_out = False

    def read(self, call: CapturedCall) -> ModuleInput | None:
        ready, context = self._ready, self._context
        if call.path in self._unreadable:
            return None
        try:
            given = apply_packing(read_input(call.path), context.args.packing, ready.module)
        except Unreadable as error:
            self._unreadable[call.path] = error
            context.say(f"Left out: {error}")
            context.not_exercised.append(f"{os.path.basename(call.path)} (left out)")
            return None
        if given.left_out and not self._told_left_out:
            self._told_left_out = True
            context.say(f"Left out of its call, for it was not kept: {', '.join(given.left_out)}")
        return move_input(given, ready.device, ready.dtype)

    def first_of(self, calls: tuple[CapturedCall, ...]) -> Turn:
        """Return the first that can be read."""
        for call in calls:
            given = self.read(call)
            if given is not None:
                return Turn(0, given, call.path)
        raise self.none_read()

    def none_read(self) -> UsageError:
        """Return the error that says why there is none."""
        return UsageError(
            f"none of the inputs could be read: {next(iter(self._unreadable.values()))}",
            "Capture again; of arguments tensors and plain values are kept.",
        )


def _make_own_input(ready: ReadyModule, context: Context) -> ModuleInput:
    args, module = context.args, ready.module
    try:
        kwargs = make_input(module, args.batch_size, args.length, torch)
    except ValueError as error:
        raise UsageError(
            f"no input can be made for {type(module).__name__}: {error}",
            "Capture some (hangbisect capture on), or wrap it in a module that takes none.",
        ) from None
    forms = ", ".join(f"{name} {list(value.shape)}" for name, value in kwargs.items())
    context.say(f"Made an input: {forms or 'no arguments'}")
    given = ModuleInput(MADE_INPUT, context.place.rank, (), kwargs, module.training, args.backward)
    return apply_packing(given, args.packing, module)
