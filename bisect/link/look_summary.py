"""What was seen of ranks, told in two steps to who has most of it already: a summary, in which each
stack is a hash and no text of py-spy stands, and then the stacks and texts that are asked for.

The ranks of a job stand in few different places: who hears of many has a stack from the first that
told it. What does not change from one look to the next is told once. Nothing that a verdict is made
of is lost: what is put together again is equal to what was seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from hashlib import blake2b
from typing import Any

from ..base.identity import RankId
from ..base.json_codec import from_json, to_short_json
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Frame, Kernel, Look, Socket, Thread
from ..base.rank_facts import RankFacts

MOST_KINDS = 50  # ranks of so many different kinds are told of in full
MOST_QUIET = 4  # ranks of a node that hang by themselves, and are told of in full
_HALTED = ("T", "t", "Z", "X")  # states of a main thread: stopped, traced, ended (man 5 proc)

Stacks = Mapping[str, tuple[Frame, ...]]  # by their hash

# What several looks at a process have in common, a list each.
_LISTS: Mapping[str, Any] = {
    "threads": Thread,
    "kernel": Kernel,
    "sockets": Socket,
    "closed_here": Socket,
}


# ---- who tells -----------------------------------------------------------------------------------


class LookSummary:
    """What was seen of ranks, as it is told: `ranks` without their looks, and these as `looks`, by
    rank and process, in `parts`.
    """

    def __init__(self, ranks: Sequence[RankFacts]) -> None:
        self.ranks = tuple(replace(one, looks=(), children=()) for one in ranks)
        self.stacks: dict[str, Any] = {}  # JSON of each, by its hash
        self.parts: list[Any] = []
        self._places: dict[str, int] = {}
        self._texts: dict[int, list[str]] = {}  # by pid
        self.looks = [
            [self._shorten_series(one) for one in (facts.looks, *facts.children)] for facts in ranks
        ]

    def give_details(
        self, stacks: Iterable[str], pids: Iterable[int]
    ) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """Return the second step: those of these stacks that it has, and the texts of the looks at
        these processes.
        """
        texts = {str(pid): self._texts[pid] for pid in sorted(set(pids)) if pid in self._texts}
        return {name: self.stacks[name] for name in stacks if name in self.stacks}, texts

    def _shorten_series(self, looks: Sequence[Look]) -> list[Any]:
        """Return the first look, and of each later one what is not as before."""
        if looks:
            self._texts[looks[0].pid] = [one.dump for one in looks]
        found: list[Any] = []
        before: dict[str, Any] = {}
        for look in looks:
            now = self._shorten_look(look)
            gone = sorted(before.keys() - now.keys())
            changed = {key: value for key, value in now.items() if before.get(key, self) != value}
            found.append({**changed, "gone": gone} if gone else changed)
            before = now
        return found

    def _shorten_look(self, look: Look) -> dict[str, Any]:
        lists: dict[str, Any] = dict.fromkeys(_LISTS, ())
        found: dict[str, Any] = to_short_json(replace(look, dump="", **lists))
        for name in _LISTS:
            if values := getattr(look, name):
                found[name] = [self._put(one) for one in values]
        return found

    def _put(self, value: Thread | Kernel | Socket) -> int:
        """Return the place of a value among the parts."""
        short = to_short_json(value)
        if isinstance(value, Thread):
            stack = short["frames"]
            short["frames"] = name = _hash_json(stack)
            self.stacks[name] = stack
        text = json.dumps(short)
        place = self._places.setdefault(text, len(self.parts))
        if place == len(self.parts):
            self.parts.append(short)
        return place

    def name_kind(self) -> str:
        """Return, of a summary of one rank, a hash of what is equal for ranks that stand in the
        same places: what is known of their steps and their logs of collectives, but for the times,
        and what `HeardLooks.kind_of` returns.
        """
        (facts,) = self.ranks
        seen = HeardLooks(self.ranks, [[*map(_lengthen, self.looks[0])]], self.parts)
        logs = [
            replace(log, operations=tuple(replace(one, at=0.0) for one in log.operations))
            for log in facts.collectives
        ]
        place = (facts.reached, facts.held, facts.phase, facts.announced, to_short_json(facts.step))
        told = (facts.raised, facts.unheard)
        return _hash_json([place, told, to_short_json(logs), seen.kind_of(0)])


def _hash_json(value: Any) -> str:
    return blake2b(json.dumps(value).encode(), digest_size=12).hexdigest()


# ---- who hears -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeardLooks:
    """A summary as who asks has it."""

    ranks: tuple[RankFacts, ...]  # without their looks
    looks: Sequence[Sequence[Sequence[dict[str, Any]]]]  # by rank and process, each one whole
    parts: Sequence[dict[str, Any]]
    stacks: frozenset[str] = field(default=frozenset())  # the hashes of those that it has

    def kind_of(self, place: int) -> tuple[Any, ...]:
        """Return what is equal for ranks that stand in the same places, with all that they have
        started: names, stacks, the system calls of their main threads, and whether these are
        stopped or have ended.
        """
        return tuple(sorted(self._kind_of_process(series) for series in self.looks[place]))

    def _kind_of_process(self, series: Sequence[dict[str, Any]]) -> tuple[str, tuple[str, ...]]:
        if not series:
            return "", ()
        last = series[-1]
        stacks = sorted({str(self.parts[n].get("frames", "")) for n in last.get("threads", ())})
        kernel = last.get("kernel", ())[:1]
        calls = [(self.parts[n].get("syscall") or {}).get("name", "") for n in kernel]
        halted = [state] if (state := last.get("state", "")) in _HALTED else []
        return str(last.get("name", "")), (*map(str, calls), *map(str, halted), *stacks)

    def pids_of(self, place: int) -> list[int]:
        """Return the processes of a rank."""
        return [int(series[0]["pid"]) for series in self.looks[place] if series]


def read_looks(ranks: Sequence[RankFacts], looks: Any, parts: Any) -> HeardLooks:
    """Return a summary of these ranks. Raises ValueError for what is none."""
    try:
        whole = [[_lengthen(series) for series in rank] for rank in looks]
        copied = [{**one} for one in parts]
        stacks = frozenset(str(one["frames"]) for one in copied if "frames" in one)
        heard = HeardLooks(tuple(ranks), whole, copied, stacks)
        _check_looks(heard)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"its looks cannot be read: {error!r:.200}") from None
    return heard


def _check_looks(heard: HeardLooks) -> None:
    """Raise an error of the kinds above where the looks do not belong to the ranks and parts."""
    if len(heard.looks) != len(heard.ranks):
        raise KeyError("looks")
    for place in range(len(heard.looks)):
        heard.pids_of(place)
        for look in (look for series in heard.looks[place] for look in series):
            for number in (number for name in _LISTS for number in look.get(name, ())):
                if not 0 <= number < len(heard.parts):
                    raise IndexError(number)


def _lengthen(series: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    whole: dict[str, Any] = {}
    for changed in series:
        gone = changed.get("gone", ())
        whole = {k: v for k, v in {**whole, **changed}.items() if k not in gone and k != "gone"}
        found.append(whole)
    return found


def read_stacks(data: Any) -> dict[str, tuple[Frame, ...]]:
    """Return the stacks in the second step of an answer. Raises ValueError."""
    try:
        return {str(name): from_json(tuple[Frame, ...], stack) for name, stack in data.items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"its stacks cannot be read: {error!r:.200}") from None


def put_looks_together(
    heard: HeardLooks, stacks: Stacks, texts: Mapping[str, Any]
) -> tuple[RankFacts, ...]:
    """Return what was seen. Raises ValueError where a stack is missing, or it is none."""
    try:
        expander = _Expander(heard.parts, stacks, texts)
        return tuple(
            expander.add_looks(facts, looks)
            for facts, looks in zip(heard.ranks, heard.looks, strict=True)
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"its looks cannot be read: {error!r:.200}") from None


class ShownProcesses:
    """Chooses the processes whose looks are to be shown with all their text: of a few ranks that
    hang by themselves, and of one of each kind.
    """

    def __init__(self) -> None:
        self._kinds: set[Any] = set()

    def choose(self, heard: HeardLooks, quiet: Sequence[RankId]) -> list[int]:
        """Return those of a node; `quiet` are its ranks that hang by themselves."""
        found: list[int] = []
        for place, facts in enumerate(heard.ranks):
            kind = heard.kind_of(place)
            is_new = kind not in self._kinds and len(self._kinds) < MOST_KINDS
            if is_new or facts.rank in quiet[:MOST_QUIET]:
                self._kinds.add(kind)
                found += heard.pids_of(place)
        return found


class _Expander:
    """Makes looks of what was told; each part is made once."""

    def __init__(self, parts: Sequence[Any], stacks: Stacks, texts: Mapping[str, Any]) -> None:
        self._parts, self._stacks, self._texts = parts, stacks, texts
        self._made: dict[tuple[str, int], Any] = {}
        self._lists: dict[tuple[str, tuple[int, ...]], tuple[Any, ...]] = {}

    def add_looks(self, facts: RankFacts, series: Sequence[Sequence[dict[str, Any]]]) -> RankFacts:
        looks, *children = (self._read_series(one) for one in series)
        return replace(facts, looks=looks, children=tuple(children))

    def _read_series(self, series: Sequence[dict[str, Any]]) -> tuple[Look, ...]:
        texts = self._texts.get(str(series[0]["pid"]), ()) if series else ()
        return tuple(
            self._read_look(look, str(texts[n]) if n < len(texts) else "")
            for n, look in enumerate(series)
        )

    def _read_look(self, data: Mapping[str, Any], text: str) -> Look:
        plain = {key: value for key, value in data.items() if key not in _LISTS}
        lists: Any = {name: self._read_list(name, tuple(data.get(name, ()))) for name in _LISTS}
        return replace(from_json(Look, plain), dump=text, **lists)

    def _read_list(self, name: str, places: tuple[int, ...]) -> tuple[Any, ...]:
        key = name, places
        if key not in self._lists:
            self._lists[key] = tuple(self._make(name, place) for place in places)
        return self._lists[key]

    def _make(self, name: str, place: int) -> Any:
        key = name, place
        if key not in self._made:
            part = self._parts[place]
            if name == "threads":
                made: Any = from_json(Thread, {**part, "frames": []})
                made = replace(made, frames=self._stacks[part["frames"]])
            else:
                made = from_json(_LISTS[name], part)
            self._made[key] = made
        return self._made[key]
