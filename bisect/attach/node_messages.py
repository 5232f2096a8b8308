"""What a machine of a job tells who asks it, in two steps, and how that is written.

First a summary (`link/look_summary.py`), then the stacks and texts that who asks wants.

A message is JSON, compressed, on lines of at most LINE_LENGTH characters: srun passes on a longer
line of one task in pieces, with lines of other tasks between them (SLURM_IO_MAX_MSG_LEN of Slurm's
src/common/io_hdr.h is 1,024). What else is printed there belongs to others and is passed over.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..base.json_codec import from_json, to_short_json
from ..base.lazy_dataclass import dataclass
from ..base.version import VERSION
from ..link.look_summary import (
    HeardLooks,
    LookSummary,
    Stacks,
    put_looks_together,
    read_looks,
)
from .node_facts import NodeFacts

LINE_LENGTH = 900
MOST_MESSAGE = 64 << 20  # bytes of JSON that one message may have
_FIRST_WORD = "hangbisect"
_NO_NAME = "-"  # stands where a node does not know by which name it is asked

Message = Mapping[str, Any]


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


class Summary:
    """What a node has seen, as it is told."""

    def __init__(self, facts: NodeFacts) -> None:
        self._facts = facts
        self.looks = LookSummary(facts.ranks)

    def message(self) -> Message:
        """Return the first step of the answer."""
        return {
            "is": "summary",
            "version": VERSION,
            "facts": to_short_json(replace(self._facts, ranks=self.looks.ranks)),
            "looks": self.looks.looks,
            "parts": self.looks.parts,
        }

    def details(self, stacks: Iterable[str], pids: Iterable[int]) -> Message:
        """Return the second step: these stacks, and the texts of the looks at these processes."""
        told, texts = self.looks.give_details(stacks, pids)
        return {"is": "details", "stacks": told, "texts": texts}


@dataclass(frozen=True)
class HeardSummary:
    """A summary as who asks has it."""

    facts: NodeFacts  # its ranks without their looks
    looks: HeardLooks


def read_summary(message: Message) -> HeardSummary:
    """Return a summary. Raises ValueError for one of another version, or that is none."""
    version = message.get("version")
    try:
        facts = from_json(NodeFacts, message["facts"])
        return HeardSummary(facts, read_looks(facts.ranks, message["looks"], message["parts"]))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        if version != VERSION:
            why = f"its facts are of another version of hangbisect ({version!s:.20}, not {VERSION})"
            raise ValueError(why) from None
        raise ValueError(f"its facts cannot be read: {error!r:.200}") from None


def put_together(heard: HeardSummary, stacks: Stacks, texts: Mapping[str, Any]) -> NodeFacts:
    """Return what a node has seen. Raises ValueError where a stack is missing, or it is none."""
    return replace(heard.facts, ranks=put_looks_together(heard.looks, stacks, texts))
