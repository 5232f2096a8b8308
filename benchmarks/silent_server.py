"""A hub of models that answers when it is told to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import threading

_COMMIT = "0" * 40
_FILE = b'{"model_type": "gpt2", "n_embd": 8}'
_MODEL = re.compile(r"/api/models/(canary/(?:whole|config|half))(?:/revision/\w+)?(?:\?|$)")
_CONFIG = re.compile(r"/canary/(?:whole|config|half)/resolve/\w+/config\.json$")
_NOTHING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class SilentServer:
    """A server of HTTP that answers nothing, until it is told to say that it knows nothing.

    It has the config.json of three models, `canary/whole`, `canary/config` and `canary/half`, and
    says so at once. What is in it it sends when it is told to; of the last one, half at once.
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
            if match := _MODEL.match(path):
                told = json.dumps({"id": match[1], "sha": _COMMIT, "siblings": []}).encode()
                connection.sendall(_describe_body(told) + told)
            elif not _CONFIG.match(path):
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


def _describe_body(body: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()


def _describe_file(path: str) -> bytes:
    etag = hashlib.sha1(path.encode()).hexdigest()  # of its length, for a file that is in git
    return (
        f"HTTP/1.1 200 OK\r\nContent-Length: {len(_FILE)}\r\nX-Repo-Commit: {_COMMIT}\r\n"
        f'ETag: "{etag}"\r\nConnection: close\r\n\r\n'
    ).encode()
