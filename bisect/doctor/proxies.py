"""The proxies of the environment, whether they answer, and the hosts that they are not to be asked
for; also how anybody on the network answered a question, and in words.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal
from urllib.parse import urlsplit

from ..base.addresses import is_loopback, proxies
from ..base.masking import mask_text
from .checks import (
    Check,
    Family,
    Finding,
    Setting,
    ok,
    problem,
    read_nothing,
    run_in_threads,
    warning,
)

ANSWER_LIMIT = 3.0  # seconds for an answer

# "silent": connected, and then nothing; "refused", "unreachable", "unknown name": failed at once.
AnswerState = Literal[
    "answers", "silent", "no connection", "refused", "unreachable", "unknown name"
]
ANSWER_WORDS = {
    "silent": f"accepts the connection and says nothing for {ANSWER_LIMIT:g} s",
    "no connection": f"does not answer within {ANSWER_LIMIT:g} s",
    "refused": "refuses the connection",
    "unreachable": "cannot be reached",
    "unknown name": "is not found: nobody here knows its name",
}


@dataclass(frozen=True)
class NetworkAnswer:
    """How somebody answered, after how many seconds; `detail` in its own or the kernel's words."""

    state: AnswerState
    seconds: float = 0.0
    detail: str = ""


ANSWERED = NetworkAnswer("answers")


def unverified_context() -> ssl.SSLContext:
    """Return what encrypts and trusts everybody."""
    # Whether it answers is asked, not who it is: nothing is sent that anybody may not know.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def answer_of_error(error: OSError, took: float, connected: bool) -> NetworkAnswer:
    """Return what an error says of who was asked; `connected`: it came after that."""
    if isinstance(error, TimeoutError):
        return NetworkAnswer("silent" if connected else "no connection", took)
    if connected:
        return NetworkAnswer(
            "answers", took, str(error)
        )  # it ended the connection: that is an answer
    if isinstance(error, socket.gaierror):
        return NetworkAnswer("unknown name", took, error.strerror or "")
    if isinstance(error, ConnectionRefusedError):
        return NetworkAnswer("refused", took)
    return NetworkAnswer("unreachable", took, error.strerror or str(error))


_SPELLINGS = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@dataclass(frozen=True)
class Proxy:
    """A proxy that variables name, and how it answered."""

    host: str
    port: str
    scheme: str
    variables: tuple[str, ...]
    asked: NetworkAnswer = ANSWERED


def named_proxies(environ: Mapping[str, str]) -> tuple[Proxy, ...]:
    """Return the proxies that variables name, each once."""
    found: dict[tuple[str, str], Proxy] = {}
    for variable, (host, port) in proxies(environ).items():
        scheme = urlsplit(environ[variable]).scheme if "//" in environ[variable] else "http"
        one = found.get((host, port), Proxy(host, port, scheme, ()))
        found[host, port] = replace(one, variables=(*one.variables, variable))
    return tuple(found.values())


def read_proxies(setting: Setting) -> tuple[Proxy, ...]:
    """Ask each proxy something that it answers by itself."""
    named = named_proxies(setting.environ)
    calls = {one: partial(_ask_proxy, one) for one in named}
    answers = run_in_threads(2 * ANSWER_LIMIT, calls)
    late = NetworkAnswer("no connection", ANSWER_LIMIT)
    return tuple(
        replace(one, asked=answer if isinstance(answer, NetworkAnswer) else late)
        for one, answer in answers.items()
    )


def _ask_proxy(proxy: Proxy) -> NetworkAnswer:
    """Connect to a proxy and let it speak: it is asked for nothing of anybody else."""
    begun = time.monotonic()
    connected = False
    try:
        with socket.create_connection((proxy.host, int(proxy.port)), timeout=ANSWER_LIMIT) as plain:
            connected = True
            socks = proxy.scheme.startswith("socks")
            with _wrap_connection(plain, proxy) as one:
                # RFC 1928, 3: version 5, one method, none; and a request that is none for a proxy.
                one.sendall(b"\5\1\0" if socks else b"GET / HTTP/1.0\r\n\r\n")
                one.recv(1)  # its end is an answer too
        return NetworkAnswer("answers", time.monotonic() - begun)
    except OSError as error:
        return answer_of_error(error, time.monotonic() - begun, connected)


def _wrap_connection(plain: socket.socket, proxy: Proxy) -> socket.socket:
    if proxy.scheme != "https":
        return plain
    return unverified_context().wrap_socket(plain, server_hostname=proxy.host)


def judge_answers(setting: Setting, facts: tuple[Proxy, ...]) -> Iterator[Finding]:
    """Judge whether the proxies answer, and whether both spellings agree."""
    for one in facts:
        who = f"{one.host}:{one.port} ({', '.join(one.variables)})"
        if one.asked.state == "answers":
            yield ok(f"{who} answers ({one.asked.seconds * 1000:.0f} ms)")
        else:
            yield problem(
                f"{who} {ANSWER_WORDS[one.asked.state]}: W&B and the hub are asked through it",
                f"unset {' '.join(one.variables)}, or name a proxy that answers",
            )
    for name in _SPELLINGS:
        lower, upper = (setting.environ.get(spelling) for spelling in (name, name.upper()))
        if lower and upper and lower != upper:
            yield warning(
                f"{name} and {name.upper()} differ ({mask_text(lower)}, {mask_text(upper)})",
                "programs differ in which one they take: set both alike",
            )
    if not facts:
        yield ok("no proxy is set")


def judge_exceptions(setting: Setting, facts: None) -> Iterator[Finding]:
    """Judge whether no_proxy excepts this machine and rank 0."""
    environ = setting.environ
    if not named_proxies(environ):
        yield ok("no proxy is set")
        return
    exceptions = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    master = setting.place.master
    wanted = ["localhost", "127.0.0.1", *([master] if master and not is_loopback(master) else [])]
    missing = [host for host in wanted if not is_excepted(host, exceptions)]
    if not missing:
        yield ok(f"no_proxy={exceptions}")
        return
    every = ",".join([*filter(None, [exceptions]), *missing])
    yield warning(
        f"no_proxy does not except {', '.join(missing)}: what speaks HTTP or gRPC to them (etcd, "
        "Ray, a local server) goes to the proxy",
        f"export no_proxy={every} NO_PROXY={every}",
    )


def is_excepted(host: str, exceptions: str) -> bool:
    """Return whether a value of no_proxy excepts a host: by its name or the end of it, or by the
    network of its address, as requests and Go have it.
    """
    words = [word.strip().lower() for word in exceptions.split(",") if word.strip()]
    if "*" in words or any(_ends_with(host.lower(), word) for word in words):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in network for word in words for network in _networks(word))


def _ends_with(host: str, word: str) -> bool:
    name = word.lstrip(".")
    return bool(name) and (host == name or host.endswith("." + name))


def _networks(word: str) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    with contextlib.suppress(ValueError):
        yield ipaddress.ip_network(word, strict=False)


FAMILY = Family(
    "Proxies",
    (
        Check(
            id="proxies",
            title="the proxies that are set answer",
            why="A proxy that accepts and never answers holds up W&B and every download, without a "
            "message.",
            read=read_proxies,
            judge=judge_answers,
        ),
        Check(
            id="no-proxy",
            title="no_proxy excepts this machine and rank 0",
            why="What ranks say to each other over HTTP or gRPC goes to a proxy, which cannot "
            "reach them.",
            read=read_nothing,
            judge=judge_exceptions,
        ),
    ),
)
