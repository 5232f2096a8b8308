"""Messages of the link as bytes: a length, JSON in UTF-8, and once both sides are known a MAC.

    length of the body, 4 bytes, big-endian | body | MAC, 16 bytes (sealed messages alone)

The MAC is keyed BLAKE2b (RFC 7693) over a counter and the body, with a key for each direction: what
is changed, left out, repeated or sent back to its sender does not fit, and the connection is over.
Nothing that comes in is believed: sizes are checked before memory is taken, and what is no JSON
object with a kind is refused in a sentence.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import field
from hashlib import blake2b
from typing import Any

from ..base.lazy_dataclass import dataclass

VERSION = 1  # of the link
LARGEST = 1 << 20  # bytes of a message
MOST = 64 << 20  # bytes of all messages of one connection
MAC_SIZE = 16
_HEADER = 4

Message = dict[str, Any]


class Refused(Exception):
    """What came is no message of ours; the sentence says why. The connection is of no more use."""


@dataclass
class Seal:
    """One direction of a connection: its key, and how many messages have gone that way."""

    key: bytes
    count: int = 0

    def sign(self, body: bytes) -> bytes:
        """Return the MAC of the next message."""
        counter = self.count.to_bytes(8, "big")
        self.count += 1
        return blake2b(counter + body, digest_size=MAC_SIZE, key=self.key).digest()


def pack(message: Message, seal: Seal | None = None) -> bytes:
    """Return a message as bytes. Raises ValueError if it is too large."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(body) > LARGEST:
        raise ValueError(f"a message of {len(body)} bytes; {LARGEST} is the most")
    mac = b"" if seal is None else seal.sign(body)
    return len(body).to_bytes(_HEADER, "big") + body + mac


@dataclass
class Decoder:
    """Makes messages of bytes as they come. It holds one message, and what came behind it."""

    seal: Seal | None = None
    taken: int = 0  # bytes so far
    _held: bytearray = field(default_factory=bytearray)

    @property
    def is_in_message(self) -> bool:
        """Return whether a message has begun and has not ended."""
        return bool(self._held)

    def feed(self, data: bytes) -> None:
        """Take in what came. Raises Refused once it is more than one connection may send."""
        self.taken += len(data)
        if self.taken > MOST:
            raise Refused(f"it has sent more than {MOST >> 20} MiB")
        self._held += data

    def next(self) -> Message | None:
        """Return the next message, None where it is not whole yet. Raises Refused."""
        if len(self._held) < _HEADER:
            return None
        size = int.from_bytes(self._held[:_HEADER], "big")
        if not 0 < size <= LARGEST:
            raise Refused("what it sent is no message of the link")
        end = _HEADER + size
        whole = end + (MAC_SIZE if self.seal else 0)
        if len(self._held) < whole:
            return None
        body, mac = bytes(self._held[_HEADER:end]), bytes(self._held[end:whole])
        del self._held[:whole]
        if self.seal is not None and not hmac.compare_digest(self.seal.sign(body), mac):
            raise Refused("a message was changed, left out or repeated on the way")
        return _read_object(body)


def _read_object(body: bytes) -> Message:
    """Return what a body says. Raises Refused."""
    try:
        found = json.loads(body.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Refused("a message is no JSON") from None
    if not isinstance(found, dict) or not isinstance(found.get("t"), str):
        raise Refused("a message says nothing of its kind")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")
