"""Step 3: the captured inputs, and which of them this rank takes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...captures import places
from ...captures.listing import Listed, Listing, forms, inputs, listed, listed_files, total
from ...errors import UsageError
from ...nearest import nearest
from ...report.words import of_ranks
from ..generating.words import counted, size
from .shares import forwards, owners, share_of

if TYPE_CHECKING:
    from ...rank.context import Context

_MOST_NAMED = 3
# What calls that hold several samples in a row name: flash attention's, transformers', OpenRLHF's.
_PACKED = re.compile(r"\b(?:cu_?seq_?lens\w*|packed_seq_lens|seq_idx)\b")


@dataclass(frozen=True)
class Chosen:
    """What one rank repeats."""

    calls: tuple[Listed, ...]  # its own, by time; () for one input that is made
    forwards: int  # that every rank does; beyond its own a rank begins again from its first
    folder: str = ""

    @property
    def is_packed(self) -> bool:
        """Whether an input names the ends of samples that are packed into one row."""
        return any(
            _PACKED.search(name) and form != "None"
            for call in self.calls
            for name, form in inputs(call.record)
        )

    @property
    def largest(self) -> int:
        """Bytes of the largest input."""
        return max((call.bytes for call in self.calls), default=0)


def captured_inputs(context: Context) -> Chosen:
    """Return what this rank takes. Raises UsageError if what was asked for is not there."""
    args, place = context.args, context.place
    context.imports("safetensors")
    folder = places.folder(args.captures or "")
    where = ", ".join(args.input_file[:_MOST_NAMED]) or f"the captures in {folder}"
    context.about_to("safetensors.safe_open", f", for {where}")
    listing = _listing(context, folder)
    for error in listing.unreadable:
        context.say(f"Left out: {error}")
    if listing.unreadable:
        context.not_exercised.append(f"{counted(len(listing.unreadable), 'file')} left out")
    calls = _of_one_module(_of_one_rank(listing.captures, args.rank, folder), args.captured)
    if not calls:
        return _none(context, folder, listing)
    if args.rank is not None:
        mine = tuple(calls)[: args.max_inputs]  # each rank takes them all
        chosen = Chosen(mine, len(mine), folder)
    else:
        captured = [call.record.rank for call in calls]
        own = share_of(captured, place.rank, place.world_size, args.max_inputs)
        most = forwards(captured, place.world_size, args.max_inputs)
        chosen = Chosen(tuple(calls[at] for at in own), most, folder)
    _tell(context, calls, chosen)
    return chosen


def _listing(context: Context, folder: str) -> Listing:
    if context.args.input_file:
        return listed_files(context.args.input_file)
    if context.args.captures is None and not os.path.isdir(folder):
        return Listing((), ())
    return listed(folder)


def _of_one_rank(calls: Sequence[Listed], rank: int | None, folder: str) -> Sequence[Listed]:
    if rank is None or not calls:
        return calls
    found = [call for call in calls if call.record.rank == rank]
    if not found:
        there = of_ranks({call.record.rank for call in calls})
        raise UsageError(f"--rank {rank}: {folder} has inputs of {there} alone")
    return found


def _of_one_module(calls: Sequence[Listed], name: str | None) -> Sequence[Listed]:
    names = sorted({call.record.name for call in calls})
    if name is None and len(names) > 1:
        raise UsageError(
            f"inputs of {len(names)} modules are there: {', '.join(names[:20])}",
            f"Name one of them: --captured {names[0]}",
        )
    if name is None or not calls:
        return calls
    found = [call for call in calls if call.record.name == name]
    if not found:
        raise UsageError(f"--captured {name}: there is none of that name{nearest(name, names)}")
    return found


def _none(context: Context, folder: str, listing: Listing) -> Chosen:
    """Return that an input is to be made, unless captured ones were asked for."""
    args = context.args
    if listing.unreadable:
        first, more = listing.unreadable[0], len(listing.unreadable) - 1
        others = f"; nor can {counted(more, 'other')}" if more else ""
        raise UsageError(f"no captured input can be read: {first}{others}", first.help)
    if any((args.captures, args.captured, args.rank is not None)):
        raise UsageError(
            f"{folder}: there is no captured input",
            "hangbisect capture on, and hangbisect.capture(module) in the job",
        )
    context.say(f"No captured inputs in {folder}: one is made from the module's signature")
    context.not_exercised.append("captured inputs (one was made)")
    return Chosen((), 1)


def _tell(context: Context, calls: Sequence[Listed], chosen: Chosen) -> None:
    place, args = context.place, context.args
    ranks = sorted({call.record.rank for call in calls})
    worlds = sorted({call.record.world_size for call in calls})
    context.say(
        f"{counted(len(calls), 'captured input')} of {of_ranks(ranks)}, {size(total(calls))}"
        + ("" if args.input_file else f", in {chosen.folder}")
    )
    if worlds != [place.world_size]:
        captured = ", ".join(map(str, worlds))
        context.say(
            f"Captured on {captured} rank{'' if worlds == [1] else 's'}, replayed on "
            f"{place.world_size}: what a module does for its own rank and world size is another"
        )
    if args.rank is None and place.world_size > 1:
        whose = of_ranks(owners(ranks, place.world_size)[place.rank])
        context.say(f"This rank takes those of {whose}: {counted(len(chosen.calls), 'input')}")
    if chosen.forwards > len(chosen.calls):
        context.say(
            f"It begins again after {len(chosen.calls)}, so that every rank does "
            f"{counted(chosen.forwards, 'forward')}"
        )
    first = chosen.calls[0]
    context.say(f"The first: {os.path.basename(first.path)}: {forms(first.record)}"[:400])
