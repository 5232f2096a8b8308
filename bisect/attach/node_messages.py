"""What a machine of a job tells who asks it, in two steps, and how that is written.

First a summary: all that it has seen, but each stack only by a hash, and no text of py-spy. Who
asks has most of these stacks from other machines: it asks for the others, and for the texts of the
processes that it is going to show. What does not change from one look to the next is told once.
Nothing that a verdict is made of is lost: what is put together again is equal to what was seen.

A message is JSON, compressed, on lines of at most LINE_LENGTH characters: srun passes on a longer
line of one task in pieces, with lines of other tasks between them (SLURM_IO_MAX_MSG_LEN of Slurm's
src/common/io_hdr.h is 1,024). What else is printed there belongs to others and is passed over.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from hashlib import blake2b
from typing import Any

from ..base.json_codec import from_json, to_short_json
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Frame, Kernel, Look, Socket, Thread
from ..base.rank_facts import RankFacts
from ..base.version import VERSION
from .node_facts import NodeFacts

LINE_LENGTH = 900
MOST_MESSAGE = 64 << 20  # bytes of JSON that one message may have
_FIRST_WORD = "hangbisect"
_NO_NAME = "-"  # stands where a node does not know by which name it is asked

Message = Mapping[str, Any]
Stacks = Mapping[str, tuple[Frame, ...]]  # by their hash


# ---- lines ---------------------------------------------------------------------------------------


def write_message(node: str, message: Message) -> bytes:
    """Return a message as lines, each with the node's name and how many lines come after it."""
    packed = base64.b64encode(zlib.compress(json.dumps(message).encode(), 1)).decode()
    width = LINE_LENGTH - len(f"{_FIRST_WORD} {node} {len(packed)} \n")
    parts = [packed[at : at + width] for at in range(0, len(packed), width)]
    left = range(len(parts) - 1, -1, -1)
    lines = (
        f"{_FIRST_WORD} {node or _NO_NAME} {n} {p}\n" for n, p in zip(left, parts, strict=True)
    )
    return "".join(lines).encode()


class MessageReader:
    """Puts messages together of the lines that several nodes say, in any order of the nodes."""

    def __init__(self) -> None:
        self._parts: dict[str, list[str]] = {}
        self._left: dict[str, int] = {}  # lines that are still to come

    def take(self, line: bytes) -> tuple[str, dict[str, Any]] | None:
        """Return the message that is complete with this line, and whose it is; None if none is.

        Raises ValueError for one that cannot be read: `ValueError(node, why)`.
        """
        words = line.decode(errors="replace").split()
        if len(words) != 4 or words[0] != _FIRST_WORD or not _is_small_number(words[2]):
            return None
        node, left = words[1].replace(_NO_NAME, "") if words[1] == _NO_NAME else words[1], words[2]
        parts = self._parts.setdefault(node, [])
        expected = self._left.pop(node, None)
        if expected not in (None, int(left)) or len(parts) * LINE_LENGTH > MOST_MESSAGE:
            del self._parts[node]
            raise ValueError(node, "a part of its answer is missing, or it is too long")
        parts.append(words[3])
        if int(left):
            self._left[node] = int(left) - 1
            return None
        return node, _unpack(node, "".join(self._parts.pop(node)))


def _is_small_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 8


def _unpack(node: str, packed: str) -> dict[str, Any]:
    try:
        opened = zlib.decompressobj()
        text = opened.decompress(base64.b64decode(packed, validate=True), MOST_MESSAGE)
        if opened.unconsumed_tail:
            raise ValueError(f"it has more than {MOST_MESSAGE >> 20} MiB")
        message = json.loads(text)
    except (ValueError, RecursionError, zlib.error, binascii.Error) as error:
        raise ValueError(node, f"its answer cannot be read: {error}") from None
    if not isinstance(message, dict):
        raise ValueError(node, "its answer cannot be read: it is no object")
    return message


# ---- a summary -----------------------------------------------------------------------------------

# What several looks at a process have in common, a list each.
_LISTS: Mapping[str, Any] = {
    "threads": Thread,
    "kernel": Kernel,
    "sockets": Socket,
    "closed_here": Socket,
}


class Summary:
    """What a node has seen, as it is told."""

    def __init__(self, facts: NodeFacts) -> None:
        self.stacks: dict[str, Any] = {}  # JSON of each, by its hash
        self._facts = facts
        self._parts: list[Any] = []
        self._places: dict[str, int] = {}

    def message(self) -> Message:
        """Return the first step of the answer."""
        looks = [
            [self._shorten_series(one) for one in (facts.looks, *facts.children)]
            for facts in self._facts.ranks
        ]
        bare = tuple(replace(one, looks=(), children=()) for one in self._facts.ranks)
        facts = to_short_json(replace(self._facts, ranks=bare))
        return {
            "is": "summary",
            "version": VERSION,
            "facts": facts,
            "looks": looks,
            "parts": self._parts,
        }

    def details(self, stacks: Iterable[str], pids: Iterable[int]) -> Message:
        """Return the second step: these stacks, and the texts of the looks at these processes."""
        wanted = set(pids)
        texts = {
            str(looks[0].pid): [one.dump for one in looks]
            for facts in self._facts.ranks
            for looks in (facts.looks, *facts.children)
            if looks and looks[0].pid in wanted
        }
        stacks_asked = {name: self.stacks[name] for name in stacks if name in self.stacks}
        return {"is": "details", "stacks": stacks_asked, "texts": texts}

    def _shorten_series(self, looks: Sequence[Look]) -> list[Any]:
        """Return the first look, and of each later one what is not as before."""
        found: list[Any] = []
        before: dict[str, Any] = {}
        for look in looks:
            now = self._shorten(look)
            gone = sorted(before.keys() - now.keys())
            changed = {key: value for key, value in now.items() if before.get(key, self) != value}
            found.append({**changed, "gone": gone} if gone else changed)
            before = now
        return found

    def _shorten(self, look: Look) -> dict[str, Any]:
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
            short["frames"] = name = _hash_stack(stack)
            self.stacks[name] = stack
        text = json.dumps(short)
        place = self._places.setdefault(text, len(self._parts))
        if place == len(self._parts):
            self._parts.append(short)
        return place


def _hash_stack(stack: Any) -> str:
    return blake2b(json.dumps(stack).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class HeardSummary:
    """A summary as who asks has it."""

    facts: NodeFacts  # its ranks without their looks
    looks: Sequence[Sequence[Sequence[dict[str, Any]]]]  # by rank and process, each one whole
    parts: Sequence[dict[str, Any]]
    stacks: frozenset[str] = field(default=frozenset())  # the hashes of those that it has

    def kind_of(self, place: int) -> tuple[Any, ...]:
        """Return what is equal for ranks that stand in the same places, with all that they have
        started: names, stacks, and the system calls of their main threads.
        """
        return tuple(sorted(self._kind_of_process(series) for series in self.looks[place]))

    def _kind_of_process(self, series: Sequence[dict[str, Any]]) -> tuple[str, tuple[str, ...]]:
        if not series:
            return "", ()
        last = series[-1]
        stacks = sorted({str(self.parts[n].get("frames", "")) for n in last.get("threads", ())})
        kernel = last.get("kernel", ())[:1]
        calls = [(self.parts[n].get("syscall") or {}).get("name", "") for n in kernel]
        return str(last.get("name", "")), (*map(str, calls), *stacks)

    def pids_of(self, place: int) -> list[int]:
        """Return the processes of a rank."""
        return [int(series[0]["pid"]) for series in self.looks[place] if series]


def read_summary(message: Message) -> HeardSummary:
    """Return a summary. Raises ValueError for one of another version, or that is none."""
    version = message.get("version")
    try:
        facts = from_json(NodeFacts, message["facts"])
        looks = [[_lengthen(series) for series in rank] for rank in message["looks"]]
        parts = [{**one} for one in message["parts"]]
        stacks = frozenset(str(one["frames"]) for one in parts if "frames" in one)
        heard = HeardSummary(facts, looks, parts, stacks)
        _check_summary(heard)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        if version != VERSION:
            why = f"its facts are of another version of hangbisect ({version!s:.20}, not {VERSION})"
            raise ValueError(why) from None
        raise ValueError(f"its facts cannot be read: {error!r:.200}") from None
    return heard


def _check_summary(heard: HeardSummary) -> None:
    """Raise an error of the kinds above where the looks do not belong to the ranks and parts."""
    if len(heard.looks) != len(heard.facts.ranks):
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


def read_stacks(message: Message) -> dict[str, tuple[Frame, ...]]:
    """Return the stacks in the second step of an answer. Raises ValueError."""
    try:
        stacks = message["stacks"]
        return {str(name): from_json(tuple[Frame, ...], stack) for name, stack in stacks.items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"its stacks cannot be read: {error!r:.200}") from None


def put_together(heard: HeardSummary, stacks: Stacks, texts: Mapping[str, Any]) -> NodeFacts:
    """Return what a node has seen. Raises ValueError where a stack is missing, or it is none."""
    try:
        expander = _Expander(heard.parts, stacks, texts)
        ranks = tuple(
            expander.add_looks(facts, looks)
            for facts, looks in zip(heard.facts.ranks, heard.looks, strict=True)
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"its looks cannot be read: {error!r:.200}") from None
    return replace(heard.facts, ranks=ranks)


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
