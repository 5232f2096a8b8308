"""Step 3 of a replay, the captured inputs, and which of them each rank takes; and what came of
each: its output on disk, which is compared with or kept for later, and the figures as lines, as a
table, as JSON.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..base.columns import Column, in_columns
from ..base.errors import UsageError, nearest
from ..base.files import write_whole
from ..base.lazy_dataclass import dataclass
from ..base.words import format_bytes, format_count, format_duration, format_ranks
from ..captures import capture_file
from ..captures.capture_file import encode_call
from ..captures.reading import (
    Capture,
    CapturedCall,
    Listing,
    describe_inputs,
    format_inputs,
    list_files,
    list_folder,
    load,
    outputs_beside,
    sum_bytes,
)

if TYPE_CHECKING:
    from ..rank.walk import Context


def assign_ranks(captured: Iterable[int], replaying: int) -> list[tuple[int, ...]]:
    """Return for each of `replaying` ranks the ranks of the capture whose inputs it takes.

    With as many ranks on both sides each takes its own. Fewer take those of rank k at k modulo
    their number; of more, those without any take another's again, so that all have something to do.
    """
    ranks = sorted(set(captured))
    own = [tuple(k for k in ranks if k % replaying == number) for number in range(replaying)]
    return [mine or (ranks[n % len(ranks)],) for n, mine in enumerate(own)] if ranks else own


def select_share(
    captured: Sequence[int], number: int, replaying: int, most: int | None = None
) -> list[int]:
    """Return the places of the inputs that rank `number` of `replaying` takes, of inputs that were
    `captured` on these ranks; `most` of them.
    """
    mine = assign_ranks(captured, replaying)[number]
    return [at for at, rank in enumerate(captured) if rank in mine][:most]


def count_forwards(captured: Sequence[int], replaying: int, most: int | None = None) -> int:
    """Return how many forwards every rank does: as many as the one that has most inputs. A forward
    may hold a collective, for which all of them must come.
    """
    return max(len(select_share(captured, number, replaying, most)) for number in range(replaying))


_MOST_NAMED = 3
# What calls that hold several samples in a row name: flash attention's, transformers', OpenRLHF's.
_PACKED = re.compile(r"\b(?:cu_?seq_?lens\w*|packed_seq_lens|seq_idx)\b")


@dataclass(frozen=True)
class ChosenInputs:
    """What one rank repeats."""

    calls: tuple[CapturedCall, ...]  # its own, by time; () for one input that is made
    forwards: int  # that every rank does; beyond its own a rank begins again from its first
    folder: str = ""

    @property
    def is_packed(self) -> bool:
        """Whether an input names the ends of samples that are packed into one row."""
        return any(
            _PACKED.search(name) and form != "None"
            for call in self.calls
            for name, form in describe_inputs(call.record)
        )

    @property
    def largest(self) -> int:
        """Bytes of the largest input."""
        return max((call.bytes for call in self.calls), default=0)


def captured_inputs(context: Context) -> ChosenInputs:
    """Return what this rank takes. Raises UsageError if what was asked for is not there."""
    args, place = context.args, context.place
    context.imports("safetensors")
    folder = capture_file.find_folder(args.captures or "")
    where = ", ".join(args.input_file[:_MOST_NAMED]) or f"the captures in {folder}"
    context.about_to("safetensors.safe_open", f", for {where}")
    listing = _list_captures(context, folder)
    for error in listing.unreadable:
        context.say(f"Left out: {error}")
    if listing.unreadable:
        context.not_exercised.append(f"{format_count(len(listing.unreadable), 'file')} left out")
    calls = _select_module(_select_rank(listing.captures, args.rank, folder), args.captured)
    if not calls:
        return _choose_made_input(context, folder, listing)
    if args.rank is not None:
        mine = tuple(calls)[: args.max_inputs]  # each rank takes them all
        chosen = ChosenInputs(mine, len(mine), folder)
    else:
        captured = [call.record.rank for call in calls]
        own = select_share(captured, place.rank, place.world_size, args.max_inputs)
        most = count_forwards(captured, place.world_size, args.max_inputs)
        chosen = ChosenInputs(tuple(calls[at] for at in own), most, folder)
    _say_chosen(context, calls, chosen)
    return chosen


def _list_captures(context: Context, folder: str) -> Listing:
    if context.args.input_file:
        return list_files(context.args.input_file)
    if context.args.captures is None and not os.path.isdir(folder):
        return Listing((), ())
    return list_folder(folder)


def _select_rank(
    calls: Sequence[CapturedCall], rank: int | None, folder: str
) -> Sequence[CapturedCall]:
    if rank is None or not calls:
        return calls
    found = [call for call in calls if call.record.rank == rank]
    if not found:
        there = format_ranks({call.record.rank for call in calls})
        raise UsageError(f"--rank {rank}: {folder} has inputs of {there} alone")
    return found


def _select_module(calls: Sequence[CapturedCall], name: str | None) -> Sequence[CapturedCall]:
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


def _choose_made_input(context: Context, folder: str, listing: Listing) -> ChosenInputs:
    """Return that an input is to be made, unless captured ones were asked for."""
    args = context.args
    if listing.unreadable:
        first, more = listing.unreadable[0], len(listing.unreadable) - 1
        others = f"; nor can {format_count(more, 'other')}" if more else ""
        raise UsageError(f"no captured input can be read: {first}{others}", first.help)
    if any((args.captures, args.captured, args.rank is not None)):
        raise UsageError(
            f"{folder}: there is no captured input",
            "hangbisect capture on, and hangbisect.capture(module) in the job",
        )
    context.say(f"No captured inputs in {folder}: one is made from the module's signature")
    context.not_exercised.append("captured inputs (one was made)")
    return ChosenInputs((), 1)


def _say_chosen(context: Context, calls: Sequence[CapturedCall], chosen: ChosenInputs) -> None:
    place, args = context.place, context.args
    ranks = sorted({call.record.rank for call in calls})
    worlds = sorted({call.record.world_size for call in calls})
    context.say(
        f"{format_count(len(calls), 'captured input')} of {format_ranks(ranks)}, "
        f"{format_bytes(sum_bytes(calls))}" + ("" if args.input_file else f", in {chosen.folder}")
    )
    if worlds != [place.world_size]:
        captured = ", ".join(map(str, worlds))
        context.say(
            f"Captured on {captured} rank{'' if worlds == [1] else 's'}, replayed on "
            f"{place.world_size}: what a module does for its own rank and world size is another"
        )
    if args.rank is None and place.world_size > 1:
        whose = format_ranks(assign_ranks(ranks, place.world_size)[place.rank])
        context.say(f"This rank takes those of {whose}: {format_count(len(chosen.calls), 'input')}")
    if chosen.forwards > len(chosen.calls):
        context.say(
            f"It begins again after {len(chosen.calls)}, so that every rank does "
            f"{format_count(chosen.forwards, 'forward')}"
        )
    first = chosen.calls[0]
    context.say(f"The first: {os.path.basename(first.path)}: {format_inputs(first.record)}"[:400])


MADE_INPUT = "made"  # the name of an input that was made


def load_earlier_output(path: str, folder: str | None) -> Capture | None:
    """Return what the call of an input at `path` returned: when it was captured, or, with a
    `folder`, when outputs were kept there. None if nothing is there. Raises Unreadable.
    """
    beside = outputs_beside(path)
    place = os.path.join(folder, os.path.basename(beside)) if folder else beside
    return load(place) if os.path.exists(place) else None


def keep_output(output: Any, folder: str, name: str, module: Any, rank: int, ranks: int) -> None:
    """Write what the input `name` gave into `folder`. Raises OSError."""
    data = encode_call(
        module,
        output,
        kind="outputs",
        name=type(module).__name__,
        rank=rank,
        world_size=ranks,
        at=time.time(),
    )
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, os.path.basename(outputs_beside(name)))
    write_whole(path, data)


SCHEMA = 1
_MOST_ROWS = 40
_COLUMNS = ("input", "tokens", "forward", "backward", "tokens/s", "peak", "difference")


@dataclass(frozen=True)
class Result:
    """Of one input."""

    name: str  # of its file, without the folder and what all of them end in
    captured_on: int  # rank
    tokens: int  # 0 where nothing in it is counted in tokens
    forward_s: float
    backward_s: float | None = None
    memory_bytes: int = 0  # the peak: on a GPU of this input, else of the process until now
    difference: float | None = None
    differs_in: str = ""
    raised: str = ""
    first: bool = False  # of this rank: what compiles does so here

    @property
    def tokens_a_second(self) -> float | None:
        """Of the forward; None of one that failed."""
        timed = self.tokens and self.forward_s and not self.raised
        return self.tokens / self.forward_s if timed else None

    def in_words(self) -> str:
        """Return all of it on one line."""
        parts = [f"forward {format_duration(self.forward_s)}"]
        if self.backward_s is not None:
            parts.append(f"backward {format_duration(self.backward_s)}")
        if self.tokens_a_second is not None:
            parts.append(f"{self.tokens_a_second:,.0f} tokens/s")
        parts.append(f"peak {format_bytes(self.memory_bytes)}")
        if self.difference is not None:
            parts.append(
                f"differs by {format_difference(self.difference)} ({self.differs_in or 'output'})"
            )
        return ", ".join([*parts, *([self.raised] if self.raised else [])])


def results_as_data(
    results: Sequence[Result], settings: dict[str, Any], rank: int, seconds: float
) -> dict[str, Any]:
    """Return the results for JSON; `seconds` is what all of it took."""
    inputs = [
        {
            **asdict(one),
            "difference": "inf" if one.difference == math.inf else one.difference,
            "tokens_a_second": one.tokens_a_second,
        }
        for one in results
    ]
    whole = {"schema": SCHEMA, "rank": rank, "seconds": seconds, "settings": settings}
    return {**whole, "inputs": inputs}


def format_table(results: Sequence[Result]) -> list[str]:
    """Return a row for each input; of many the failed, the slowest and the most different.

    As wide as it is: a terminal that is narrower wraps it, and no number is cut.
    """
    shown = select_telling(results)
    rows = [_format_result_cells(one) for one in shown]
    columns = [place for place in range(len(_COLUMNS)) if any(row[place] != "-" for row in rows)]
    made = [Column(_COLUMNS[place], right=bool(place)) for place in columns]
    lines = in_columns(made, [[(row[place], "") for place in columns] for row in rows])
    if len(shown) < len(results):
        lines.append(f"and {len(results) - len(shown):,} more; all of them in the JSON file")
    return lines


def select_telling(results: Sequence[Result]) -> list[Result]:
    """Return all of up to 40; of more those that failed, were slowest or differ most, in order."""
    if len(results) <= _MOST_ROWS:
        return list(results)
    some = _MOST_ROWS // 2
    places = [at for at, one in enumerate(results) if one.raised or one.first][:some]
    by_time = sorted(range(len(results)), key=lambda at: -results[at].forward_s)
    by_difference = sorted(range(len(results)), key=lambda at: -(results[at].difference or 0.0))
    telling = dict.fromkeys([*places, *by_time[: some // 2], *by_difference[: some // 2]])
    return [results[at] for at in sorted(telling)]


def _format_result_cells(one: Result) -> list[str]:
    speed = one.tokens_a_second
    return [
        one.name,
        f"{one.tokens:,}" if one.tokens else "-",
        "failed" if one.raised else f"{one.forward_s:.3f} s",
        "-" if one.backward_s is None else f"{one.backward_s:.3f} s",
        "-" if speed is None else f"{speed:,.0f}",
        format_bytes(one.memory_bytes),
        "-" if one.difference is None else format_difference(one.difference),
    ]


def format_difference(value: float) -> str:
    """Return "0", "inf" or "3.1e-06"."""
    return f"{value:.1e}" if value and math.isfinite(value) else f"{value:g}"


def format_summary(results: Sequence[Result]) -> str:
    """Return all inputs in one line."""
    done = [one.forward_s for one in results if not one.raised]
    later = [one.forward_s for one in results if not (one.raised or one.first)]
    parts = [f"{len(results):,} input{'' if len(results) == 1 else 's'} replayed"]
    if failed := len(results) - len(done):
        parts.append(f"{failed:,} failed")
    if done and results[0].first and not results[0].raised:
        parts.append(f"the first forward {format_duration(results[0].forward_s)}")
    if later:
        parts.append(f"later ones {format_duration(statistics.median(later))} (median)")
    differences = [one.difference for one in results if one.difference is not None]
    if differences:
        parts.append(f"the largest difference {format_difference(max(differences))}")
    return ", ".join(parts)
