"""What goes in, turn by turn: an input of this rank's own, or what stands in for one.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ...captures.listing import Listed
from ...captures.reading import Unreadable
from ...errors import UsageError
from .given_input import Given, in_form, on_device, read
from .inputs_step import Chosen
from .made_input import made_input
from .outputs import MADE
from .ready_step import Ready

if TYPE_CHECKING:
    from ...rank.context import Context


@dataclass(frozen=True)
class Turn:
    """One forward."""

    number: int  # from 1
    given: Given
    path: str  # of its file; of one that was made its name
    counts: bool = True  # False: it is done for the other ranks' sake, and was done before

    @property
    def made(self) -> bool:
        """Whether no job's forward was called with it."""
        return self.path == MADE


def turns(chosen: Chosen, ready: Ready, context: Context) -> Iterator[Turn]:
    """Yield what a rank calls the module with, in order. One that cannot be read is left out; with
    several ranks another stands in for it, for they come to its collectives. Raises UsageError
    where an input is to be made and cannot be, and where none can be read.
    """
    if not chosen.calls:
        made = on_device(_made(ready, context), ready.device, ready.dtype)
        yield Turn(1, made, MADE)
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

    def __init__(self, ready: Ready, context: Context) -> None:
        self._ready = ready
        self._context = context
        self._unreadable: dict[str, Unreadable] = {}
        self._told_left_out = False

    def read(self, call: Listed) -> Given | None:
        ready, context = self._ready, self._context
        if call.path in self._unreadable:
            return None
        try:
            given = in_form(read(call.path), context.args.packing, ready.module)
        except Unreadable as error:
            self._unreadable[call.path] = error
            context.say(f"Left out: {error}")
            context.not_exercised.append(f"{os.path.basename(call.path)} (left out)")
            return None
        if given.left_out and not self._told_left_out:
            self._told_left_out = True
            context.say(f"Left out of its call, for it was not kept: {', '.join(given.left_out)}")
        return on_device(given, ready.device, ready.dtype)

    def first_of(self, calls: tuple[Listed, ...]) -> Turn:
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


def _made(ready: Ready, context: Context) -> Given:
    args, module = context.args, ready.module
    try:
        kwargs = made_input(module, args.batch_size, args.length, torch)
    except ValueError as error:
        raise UsageError(
            f"no input can be made for {type(module).__name__}: {error}",
            "Capture some (hangbisect capture on), or wrap it in a module that takes none.",
        ) from None
    forms = ", ".join(f"{name} {list(value.shape)}" for name, value in kwargs.items())
    context.say(f"Made an input: {forms or 'no arguments'}")
    given = Given(MADE, context.place.rank, (), kwargs, module.training, args.backward)
    return in_form(given, args.packing, module)
