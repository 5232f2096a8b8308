"""Servers that do not answer as they should."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture
def nobody() -> Iterator[str]:
    """A port of this machine that refuses: it is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield str(taken.getsockname()[1])


@pytest.fixture
def curt() -> Iterator[str]:
    """A server that ends each connection at once, as proxies do that do not like a request."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                while True:
                    server.accept()[0].close()
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        yield str(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
