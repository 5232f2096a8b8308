"""Where an inference server says that it is ready to serve: the port that its command names, else
the one that it takes by itself, and what it is asked there.

The ports and paths: vllm/entrypoints/openai/cli_args.py and api_server.py (/health); sglang/srt/
server_args.py and entrypoints/http_server.py; tensorrt_llm/commands/serve.py and serve/
openai_server.py; ray/serve/_private/constants.py and http_util.py; TGI's launcher/src/main.rs;
llama.cpp's tools/server/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from . import process_roles
from .command_words import given, own_words


class ServerEndpoint(NamedTuple):
    """Where one server says that it is ready."""

    port: int
    path: str = ""  # what is asked for; "": nothing is, that it listens there is enough


_BY_FRAMEWORK = {
    process_roles.VLLM: ServerEndpoint(8000, "/health"),
    process_roles.SGLANG: ServerEndpoint(30000, "/health"),
}
# By the name of the program and the word behind it, "" for any.
_BY_PROGRAM = {
    ("trtllm-serve", ""): ServerEndpoint(8000, "/health"),
    ("serve", "run"): ServerEndpoint(8000, "/-/healthz"),  # Ray Serve
    ("text-generation-launcher", ""): ServerEndpoint(3000, "/health"),
    ("llama-server", ""): ServerEndpoint(8080, "/health"),
}
_PORT = "--port"


def find_endpoint(words: Sequence[str]) -> Optional[ServerEndpoint]:  # noqa: UP045 Python 3.9
    """Return where the server says that it is ready that a command starts; of any other program
    whose own words name a port (`--port`) that one; None for a command that starts none.
    """
    known = _BY_FRAMEWORK.get(process_roles.find_framework(words))
    begin = 0
    for at, word in enumerate(words if known is None else ()):
        name, following = word.rpartition("/")[2], [*words[at + 1 : at + 2], ""][0]
        found = _BY_PROGRAM.get((name, "")) or _BY_PROGRAM.get((name, following))
        if found is not None:
            known, begin = found, at
            break
    # A launcher's own --port is where ranks meet.
    begin = begin if known is not None else own_words(words)
    port = given(words[begin:], _PORT) or ""
    if not port:
        return known
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not 0 < number < 1 << 16:
        return None
    return ServerEndpoint(number, known.path if known is not None else "")
