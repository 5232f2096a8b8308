"""Servers on 127.0.0.1 that do not answer as they should. All yield their port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .processes import helper

_SILENT = """
import socket
with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
    ready(server.getsockname()[1])
    kept = []
    while True:
        kept.append(server.accept())
"""

# The queue of a listening socket that nobody accepts from takes one connection more than its
# backlog; then the kernel drops every SYN (tcp_abort_on_overflow is 0 by default: tcp(7)).
_DEAF = """
import socket
server = socket.create_server(("127.0.0.1", 0), backlog=0)
fills = socket.create_connection(server.getsockname())
ready(server.getsockname()[1])
threading.Event().wait()
"""

# A port that is taken but not listened at: a connection is refused, and nobody else can get it.
_REFUSING = """
import socket
taken = socket.socket()
taken.bind(("127.0.0.1", 0))
ready(taken.getsockname()[1])
threading.Event().wait()
"""

# Reads what it is asked, then sends `text`, a byte every `every` seconds.
_TRICKLING = """
import socket, time
text, every = sys.argv[1].encode(), float(sys.argv[2])
def serve(connection):
    connection.recv(65536)
    for byte in text:
        connection.send(bytes([byte]))
        time.sleep(every)
    connection.close()
with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
    ready(server.getsockname()[1])
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
"""


@contextlib.contextmanager
def silent() -> Iterator[int]:
    """A server that accepts every connection and never says a word."""
    with helper(_SILENT) as server:
        yield int(server.said)


@contextlib.contextmanager
def deaf() -> Iterator[int]:
    """A port at which SYNs are never answered, as behind a firewall that drops them."""
    with helper(_DEAF) as server:
        yield int(server.said)


@contextlib.contextmanager
def refusing() -> Iterator[int]:
    """A port that refuses connections, for as long as the block."""
    with helper(_REFUSING) as server:
        yield int(server.said)


@contextlib.contextmanager
def trickling(text: str, every: float) -> Iterator[int]:
    """A server that answers whatever it is asked with `text`, a byte every `every` seconds."""
    with helper(_TRICKLING, text, every) as server:
        yield int(server.said)
