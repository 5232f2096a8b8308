"""One connection of the link: messages as bytes with a length and a MAC, how both sides find out
that they belong to one job and one user, and a deadline for each read.

    length of the body, 4 bytes, big-endian | body | MAC, 16 bytes (sealed messages alone)

A body is JSON, or JSON that zlib has compressed: what nodes report of their ranks says the same
words again and again, and is some 5 kB a node, 1.5 kB compressed. So does a word on each rank: 60
bytes a rank of a node of 8, 14 compressed.

The MAC is keyed BLAKE2b (RFC 7693) over a counter and the body, with a key for each direction: what
is changed, left out, repeated or sent back to its sender does not fit, and the connection is over.
Nothing that comes in is believed: sizes are checked before memory is taken, and what is no JSON
object with a kind is refused in a sentence.

A node that has no token sends a secret that the lead alone can read: only a process of the same
user may decode it. That secret is the token of their connection.

    lead  {"t": "lead", "v": 1, "nonce": ..., "secret": true}
    node  {"t": "node", "v": 1, "nonce": ..., "job": ..., "proof": ...}
    lead  {"t": "in", "proof": ...}            or, of a node that does not lead, with
          {"lead": [address, port]}            where who does is: nothing more is said there

Who listens speaks first, so a node knows at once whether it has met a lead at a port. Each proves
by a MAC over both nonces that it has the token, without showing it; the keys of the connection are
made of the token and both nonces, so nothing of one connection is of use in another. On Slurm a
node without a token sends one of its own, which the lead alone can read ("munge"). Where a lead is
"open", a node without any is heard as well: the proofs of both show nothing but that they speak of
the same job, and it is ordered nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import shutil
import socket
import time
import zlib
from dataclasses import field, replace
from hashlib import blake2b
from typing import Any

from ..base.deadline import call_with_limit, run_command
from ..base.lazy_dataclass import dataclass

VERSION = 1  # of the link
LARGEST = 1 << 20  # bytes of a message
MOST = 64 << 20  # bytes of all messages of one connection, at once
MOST_UNPROVED = MOST // 4  # the same of who has proved nothing
MORE_EACH_SECOND = 64 << 10  # bytes beside that: a training of weeks has words and beats all along
MAC_SIZE = 16
_HEADER = 4
_PLAIN = 128  # bytes of a message that is not worth compressing: it takes 4 µs, and saves nothing

Message = dict[str, Any]
Address = tuple[str, int]


class Refused(Exception):
    """What came is no message of ours; the sentence says why. The connection is of no more use."""


class LeadsElsewhere(Refused):
    """Who listens there is of the job and does not lead; `place` is where who does listens."""

    def __init__(self, place: Address) -> None:
        super().__init__(f"who leads is at {place[0]}:{place[1]}")
        self.place = place


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
    return pack_body(make_body(message), seal)


def make_body(message: Message) -> bytes:
    """Return the body of a message: the same for all to whom it goes. Raises ValueError if it is
    too large.
    """
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(body) > LARGEST:
        raise ValueError(f"a message of {len(body)} bytes; {LARGEST} is the most")
    return body if len(body) < _PLAIN else min(body, zlib.compress(body, level=1), key=len)


def pack_body(body: bytes, seal: Seal | None = None) -> bytes:
    """Return a body with its length, and with a MAC where there is a seal."""
    mac = b"" if seal is None else seal.sign(body)
    return len(body).to_bytes(_HEADER, "big") + body + mac


@dataclass
class Decoder:
    """Makes messages of bytes as they come. It holds one message, and what came behind it."""

    seal: Seal | None = None
    taken: int = 0  # bytes so far
    most: int = MOST  # bytes that it may be by now
    _held: bytearray = field(default_factory=bytearray)

    @property
    def is_in_message(self) -> bool:
        """Return whether a message has begun and has not ended."""
        return bool(self._held)

    def feed(self, data: bytes) -> None:
        """Take in what came. Raises Refused once it is more than one connection may send."""
        self.taken += len(data)
        if self.taken > self.most:
            raise Refused(f"it has sent more than {self.most >> 20} MiB")
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
        if not body.startswith(b"{"):
            body = _decompress(body)
            self.taken += len(body)
        return _read_object(body)


def _decompress(body: bytes) -> bytes:
    """Return what a body was. Raises Refused, also for what would be longer than a message."""
    decompressor = zlib.decompressobj()
    try:
        found = decompressor.decompress(body, LARGEST)
    except zlib.error:
        raise Refused("a message is no JSON") from None
    if not decompressor.eof:
        raise Refused("a message is cut off, or too long once it is decompressed")
    return found


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


_LIMIT = 2.0  # seconds for munged to answer
_LIFETIME = 60  # seconds for which a credential holds: clocks of nodes may be apart
_LONGEST = 4096  # characters of a credential; one of ours has some 250
_SECRET_SIZE = 32  # bytes
_KEYS = ("STATUS", "UID")


def has_munge() -> bool:
    """Return whether this is a job of Slurm's whose nodes can prove their user by munge."""
    programs = ("munge", "unmunge")
    return "SLURM_JOB_ID" in os.environ and all(map(shutil.which, programs))


async def make_secret() -> tuple[bytes, str]:
    """Return a new secret, and the credential that it is in. Raises Refused."""
    secret = secrets.token_hex(_SECRET_SIZE).encode()
    words = ["munge", f"--restrict-uid={os.getuid()}", f"--ttl={_LIFETIME}"]
    status, printed, error = await _run(words, secret)
    if status != 0 or not printed.startswith(b"MUNGE:"):
        raise Refused(f"munge made no credential: {error or status}")
    return secret, printed.decode().strip()


async def read_secret(credential: object) -> bytes:
    """Return the secret in a credential that a process of this user made. Raises Refused."""
    is_one = isinstance(credential, str) and credential.startswith("MUNGE:")
    if not isinstance(credential, str) or not is_one or len(credential) > _LONGEST:
        raise Refused("what it showed is no credential of munge")
    words = ["unmunge", f"--keys={','.join(_KEYS)}", "--numeric"]
    status, printed, error = await _run(words, credential.encode())
    head, _, secret = printed.partition(b"\n\n")
    found = dict(line.split(":", 1) for line in head.decode(errors="replace").splitlines())
    if status != 0 or found.get("STATUS", "").strip() != "0":
        raise Refused(f"munge does not accept its credential: {error or status}")
    if found.get("UID", "").strip() != str(os.getuid()):
        raise Refused(f"it is of user {found.get('UID', '').strip()}, and we of {os.getuid()}")
    if len(secret) != 2 * _SECRET_SIZE:
        raise Refused("its credential of munge has no secret")
    return secret


async def _run(words: list[str], given: bytes) -> tuple[int | None, bytes, str]:
    """Return the status, what was printed, and the error. Raises Refused."""
    try:
        ran = await call_with_limit(run_command, words, _LIMIT, given, limit=_LIMIT + 1.0)
    except (OSError, TimeoutError, RuntimeError) as error:
        raise Refused(f"{words[0]}: {error}") from None
    return ran.status, ran.out, " ".join(ran.err.split())[-200:]


NONCE_SIZE = 16  # bytes
_LONGEST_TOKEN = 64  # bytes: the longest key that BLAKE2b takes (RFC 7693, 2.1)


@dataclass(frozen=True)
class Credentials:
    """What both sides have to have the same of."""

    job: str
    token: bytes = b""
    by_munge: bool = False  # of a node without a token munge may tell that it is of the same user
    also: str = ""  # another name of the job, by which who listens knows it too
    is_open: bool = False  # who listens hears nodes too that prove nothing

    @property
    def has_token(self) -> bool:
        return bool(self.token)

    @property
    def can_prove(self) -> bool:
        """Return whether the other side can be shown that we are of the same user."""
        return self.has_token or self.by_munge

    def of_listener(self) -> Credentials:
        """Return what who listens proves: where munge alone tells who a node is, a token that
        nobody is to have.
        """
        if self.by_munge and not self.has_token:
            return replace(self, token=secrets.token_bytes())
        return self

    def prove(self, who: str, nonces: bytes) -> bytes:
        """Return the proof of one side, or a key: `who` says which."""
        proved = nonces + self.job.encode()
        key = self.token[:_LONGEST_TOKEN]
        return blake2b(proved, digest_size=32, key=key, person=who.encode()).digest()


def make_greeting(credentials: Credentials) -> Message:
    """Return what the lead says first."""
    nonce = os.urandom(NONCE_SIZE).hex()
    greeting = {"t": "lead", "v": VERSION, "nonce": nonce, "secret": credentials.has_token}
    ways = {"munge": credentials.by_munge, "open": credentials.is_open}
    return greeting | {name: True for name, is_there in ways.items() if is_there}


def answer_greeting(credentials: Credentials, greeting: Message) -> Message:
    """Return what a node answers a lead. Raises Refused if that is none, or none for this job."""
    _check(greeting, "lead")
    proves_nothing = greeting.get("open") is True and not credentials.has_token
    if greeting.get("secret") is not credentials.has_token and not proves_nothing:
        whose = "we have none" if greeting.get("secret") else "it has none"
        raise Refused(f"the lead and this node have no token in common: {whose}")
    nonce = os.urandom(NONCE_SIZE)
    proof = credentials.prove("node", _nonce_of(greeting) + nonce).hex()
    answer = {"t": "node", "v": VERSION, "nonce": nonce.hex(), "job": credentials.job}
    return {**answer, "proof": proof} | ({"open": True} if proves_nothing else {})


def check_answer(credentials: Credentials, greeting: Message, answer: Message) -> Message:
    """Return what the lead says to a node that it knows by its answer. Raises Refused."""
    _check(answer, "node")
    if answer.get("job") != credentials.job:
        raise Refused("it is of another job")
    nonces = _nonce_of(greeting) + _nonce_of(answer)
    if not _matches_proof(answer.get("proof"), credentials.prove("node", nonces)):
        raise Refused("it does not have the token of this job")
    return {"t": "in", "proof": credentials.prove("lead", nonces).hex()}


def check_welcome(
    credentials: Credentials, greeting: Message, answer: Message, welcome: Message
) -> None:
    """Check what the lead said to the node's answer. Raises Refused."""
    nonces = _nonce_of(greeting) + _nonce_of(answer)
    if welcome.get("t") != "in" or not _matches_proof(
        welcome.get("proof"), credentials.prove("lead", nonces)
    ):
        raise Refused("who listens there does not have the token of this job")


def make_seals(credentials: Credentials, greeting: Message, answer: Message) -> tuple[Seal, Seal]:
    """Return the seals of a connection: of what the lead sends, and of what the node sends."""
    nonces = _nonce_of(greeting) + _nonce_of(answer)
    return Seal(credentials.prove("from lead", nonces)), Seal(
        credentials.prove("from node", nonces)
    )


def _check(message: Message, kind: str) -> None:
    if message["t"] != kind:
        raise Refused("what it sent is no greeting of the link")
    if message.get("v") != VERSION:
        raise Refused(f"it speaks version {message.get('v')!r:.20} of the link, and we {VERSION}")


def _nonce_of(message: Message) -> bytes:
    value = message.get("nonce")
    try:
        nonce = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        nonce = b""
    if len(nonce) != NONCE_SIZE:
        raise Refused("what it sent is no greeting of the link")
    return nonce


def _matches_proof(claimed: object, proof: bytes) -> bool:
    return isinstance(claimed, str) and hmac.compare_digest(claimed.encode(), proof.hex().encode())


GREETING_LIMIT = 3.0  # seconds for the other side to prove itself
MESSAGE_LIMIT = 10.0  # seconds from the first byte of a message to its last
_AT_ONCE = 1 << 16  # bytes
_MOST_UNSENT = 16 * LARGEST  # bytes that the other side has not taken: then it is given up


class Channel:
    """Both directions of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Nothing is sealed yet."""
        self._reader, self._writer = reader, writer
        self._decoder = Decoder()
        self._seal: Seal | None = None
        self._opened = time.monotonic()
        self._began = 0.0  # when the message began that is not whole yet
        self.is_trusted = False  # both sides have proved that they have the same token

    async def read(self, limit: float) -> Message:
        """Return the next message. Raises Refused if what comes is none, TimeoutError if none
        begins within `limit` seconds or one takes too long, ConnectionError at the end.
        """
        until = time.monotonic() + limit
        while (message := self._decoder.next()) is None:
            now = time.monotonic()
            if self._decoder.is_in_message:
                self._began = self._began or now
                until = min(until, self._began + MESSAGE_LIMIT)
            async with asyncio.timeout(max(0.0, until - now)):  # wait_for() may swallow the
                data = await self._reader.read(_AT_ONCE)  # end of a task (cpython#86296)
            if not data:
                raise ConnectionError("the connection was closed")
            most = MOST if self.is_trusted else MOST_UNPROVED
            self._decoder.most = most + int((now - self._opened) * MORE_EACH_SECOND)
            self._decoder.feed(data)
        self._began = 0.0
        return message

    def send(self, message: Message) -> None:
        """Send a message. Never waits: who takes nothing is given up. Raises ConnectionError, and
        ValueError for one that is too large.
        """
        self.send_body(make_body(message))

    def send_body(self, body: bytes) -> None:
        """Send a message of which the body is made already. Raises ConnectionError."""
        if self._writer.is_closing():
            raise ConnectionError("the connection was closed")
        if self._writer.transport.get_write_buffer_size() > _MOST_UNSENT:
            self.close()
            raise ConnectionError("the other side takes nothing more")
        self._writer.write(pack_body(body, self._seal))

    def close(self) -> None:
        """Let go at once, with what was not sent."""
        with contextlib.suppress(Exception):
            self._writer.transport.abort()

    def end(self) -> None:
        """Let go once what was not sent is, as long as this process lives."""
        with contextlib.suppress(Exception):
            self._writer.close()

    async def leave(self, limit: float) -> None:
        """Send what is unsent, for `limit` seconds at the most, and let go."""
        with contextlib.suppress(Exception):
            self._writer.close()
            await asyncio.wait_for(self._writer.wait_closed(), limit)
        self.close()

    @property
    def ends(self) -> tuple[Address, Address] | None:
        """The addresses of this side and of the other one, None if they are not known."""
        names = [self._writer.get_extra_info(name) for name in ("sockname", "peername")]
        if not all(isinstance(one, tuple) and len(one) > 1 for one in names):
            return None
        here, there = ((str(one[0]), int(one[1])) for one in names)
        return here, there

    async def welcome(self, credentials: Credentials, lead: Address | None = None) -> None:
        """Be the lead's side of the greeting; or, of who does not lead and knows who does, at
        `lead`, the end of it. Raises as read() does.
        """
        greeting = make_greeting(credentials)
        self.send(greeting)
        answer = await self.read(GREETING_LIMIT)
        if credentials.also and answer.get("job") == credentials.also:
            credentials = replace(credentials, job=credentials.also)
        if credentials.by_munge and "munge" in answer:
            credentials = replace(credentials, token=await read_secret(answer["munge"]))
        elif credentials.is_open and answer.get("open") is True:
            credentials = replace(credentials, token=b"")
        self.send(check_answer(credentials, greeting, answer) | ({"lead": lead} if lead else {}))
        self._seal, self._decoder.seal = make_seals(credentials, greeting, answer)
        self.is_trusted = credentials.has_token

    async def greet(self, credentials: Credentials) -> None:
        """Be the node's side of it. Raises LeadsElsewhere too."""
        greeting, shown = await self.read(GREETING_LIMIT), {}
        if credentials.by_munge and not credentials.has_token and greeting.get("munge") is True:
            secret, credential = await make_secret()
            credentials, shown = replace(credentials, token=secret), {"munge": credential}
        answer = {**answer_greeting(credentials, greeting), **shown}
        self.send(answer)
        welcome = await self.read(GREETING_LIMIT)
        check_welcome(credentials, greeting, answer, welcome)
        if "lead" in welcome:
            raise LeadsElsewhere(_read_address(welcome["lead"]))
        self._decoder.seal, self._seal = make_seals(credentials, greeting, answer)
        self.is_trusted = credentials.has_token


def _read_address(value: object) -> Address:
    if isinstance(value, list) and len(value) == 2:
        host, port = value
        if isinstance(host, str) and type(port) is int and 0 < port < 1 << 16:
            return host, port
    raise Refused("what it says of who leads is no address")


async def open_channel(address: str, port: int, limit: float) -> Channel:
    """Return a connection to where a lead may listen. Raises OSError, TimeoutError."""
    async with asyncio.timeout(limit):
        reader, writer = await asyncio.open_connection(address, port, limit=_AT_ONCE)
    set_options(writer)
    return Channel(reader, writer)


# Bytes of data that reach every host, whatever is between (RFC 9293, 3.7.1).
_SMALLEST_SEGMENT = 536


def limit_segments(server: asyncio.Server) -> None:
    """Have both sides of what is accepted send short segments: on a way on which longer ones are
    lost (a link with a smaller MTU, and a router that may not say so) what is said arrives all the
    same.
    """
    for one in server.sockets:
        with contextlib.suppress(OSError, AttributeError):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SMALLEST_SEGMENT)


def set_options(writer: asyncio.StreamWriter) -> None:
    """Let small messages go at once."""
    with contextlib.suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


__all__ = ["Channel", "Refused", "limit_segments", "open_channel", "set_options"]
