"""A hub of models that answers when it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading

_COMMIT = "0" * 40
_FILE = b'{"model_type": "gpt2", "n_embd": 8}'
_NOTHING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class SilentServer:
    """A server of HTTP that answers nothing, until it is told to say that it knows nothing.

    It has two files, config.json of the models `canary/whole` and `canary/half`, and says so at
    once. Of what is in the second one it sends half at once, the rest when it is told to answer.
    """

    def __init__(self) -> None:
        """Listen on a port of this machine."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._answers = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def answer(self, yes: bool) -> None:
        """Answer from now on, or no more."""
        self._answers.set() if yes else self._answers.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            method, path = (*connection.recv(1 << 16).decode("latin-1").split(" ", 2), "", "")[:2]
            if not path.startswith(("/canary/whole/resolve/", "/canary/half/resolve/")) or (
                not path.endswith("/config.json")
            ):
                self._answers.wait()
                connection.sendall(_NOTHING)
            elif method == "HEAD":
                connection.sendall(_describe_file(path))
            else:
                first = len(_FILE) // 2 if "/half/" in path else 0
                if first:
                    connection.sendall(_describe_file(path) + _FILE[:first])
                self._answers.wait()
                connection.sendall(_FILE[first:] if first else _describe_file(path) + _FILE)


def _describe_file(path: str) -> bytes:
    etag = "1" * 40 if "/half/" in path else "2" * 40
    return (
        f"HTTP/1.1 200 OK\r\nContent-Length: {len(_FILE)}\r\nX-Repo-Commit: {_COMMIT}\r\n"
        f'ETag: "{etag}"\r\nConnection: close\r\n\r\n'
    ).encode()
