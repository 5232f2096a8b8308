"""One connection of the link: messages over an asyncio stream, each read with a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from dataclasses import replace

from . import munge
from .framing import LARGEST, Decoder, Message, Refused, Seal, pack
from .handshake import (
    Credentials,
    answer_greeting,
    check_answer,
    check_welcome,
    make_greeting,
    make_seals,
)

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
            self._decoder.feed(data)
        self._began = 0.0
        return message

    def send(self, message: Message) -> None:
        """Send a message. Never waits: who takes nothing is given up. Raises ConnectionError."""
        if self._writer.is_closing():
            raise ConnectionError("the connection was closed")
        if self._writer.transport.get_write_buffer_size() > _MOST_UNSENT:
            self.close()
            raise ConnectionError("the other side takes nothing more")
        self._writer.write(pack(message, self._seal))

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

    async def welcome(self, credentials: Credentials) -> None:
        """Be the lead's side of the greeting. Raises as read() does."""
        greeting = make_greeting(credentials)
        self.send(greeting)
        answer = await self.read(GREETING_LIMIT)
        if credentials.by_munge and "munge" in answer:
            credentials = replace(credentials, token=await munge.read_secret(answer["munge"]))
        self.send(check_answer(credentials, greeting, answer))
        self._seal, self._decoder.seal = make_seals(credentials, greeting, answer)
        self.is_trusted = credentials.has_token

    async def greet(self, credentials: Credentials) -> None:
        """Be the node's side of it."""
        greeting, shown = await self.read(GREETING_LIMIT), {}
        if credentials.by_munge and not credentials.has_token and greeting.get("munge") is True:
            secret, credential = await munge.make_secret()
            credentials, shown = replace(credentials, token=secret), {"munge": credential}
        answer = {**answer_greeting(credentials, greeting), **shown}
        self.send(answer)
        check_welcome(credentials, greeting, answer, await self.read(GREETING_LIMIT))
        self._decoder.seal, self._seal = make_seals(credentials, greeting, answer)
        self.is_trusted = credentials.has_token


async def open_channel(address: str, port: int, limit: float) -> Channel:
    """Return a connection to where a lead may listen. Raises OSError, TimeoutError."""
    async with asyncio.timeout(limit):
        reader, writer = await asyncio.open_connection(address, port, limit=_AT_ONCE)
    set_options(writer)
    return Channel(reader, writer)


def set_options(writer: asyncio.StreamWriter) -> None:
    """Let small messages go at once."""
    with contextlib.suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


__all__ = ["Channel", "Refused", "open_channel", "set_options"]
