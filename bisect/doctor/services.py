"""The proxies of the environment, whether they answer, and the hosts that they are not to be asked
for; the services that a job asks while it starts: W&B and the Hugging Face hub; and how a host on
the network answered a question, in words.
"""

from __future__ import annotations

import configparser
import contextlib
import importlib.util
import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal
from urllib.parse import urlsplit

from ..base.addresses import is_loopback, proxies
from ..base.lazy_dataclass import dataclass
from ..base.masking import mask_text
from ..base.words import format_seconds
from .examination import (
    Check,
    CheckFamily,
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
    """How a host answered, after how many seconds; `detail` in its own or the kernel's words."""

    state: AnswerState
    seconds: float = 0.0
    detail: str = ""


ANSWERED = NetworkAnswer("answers")


def unverified_context() -> ssl.SSLContext:
    """Return a context that encrypts and accepts every certificate."""
    # Whether it answers is asked, not who it is: nothing secret is sent.
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
    """Connect to a proxy and wait for its answer: it is asked for nothing of another host."""
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


PROXIES = CheckFamily(
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


_NO_WANDB = "WANDB_MODE=offline (later: wandb sync), or a way there: https_proxy"
_NO_HUB = "HF_HUB_OFFLINE=1 if all is in the cache, or a way there: https_proxy, HF_ENDPOINT"
_TRUE = frozenset(["1", "ON", "YES", "TRUE"])  # huggingface_hub.constants


@dataclass(frozen=True)
class Endpoint:
    """A service that a job may ask. `offline` says why it is not asked at all, "" if it is."""

    url: str
    offline: str = ""
    wanted: str = ""  # why a job from here is likely to ask it, "" if nothing says so
    proxy: str = ""  # the variable whose proxy is between
    asked: NetworkAnswer = ANSWERED


def wandb(environ: Mapping[str, str], settings: Mapping[str, str]) -> Endpoint:
    """Return where W&B is asked; `settings` are those of W&B's files."""
    mode = environ.get("WANDB_MODE") or settings.get("mode", "")
    url = environ.get("WANDB_BASE_URL") or settings.get("base_url") or "https://api.wandb.ai"
    offline = ""
    if mode in ("offline", "dryrun", "disabled"):
        offline = f"WANDB_MODE={mode}" if environ.get("WANDB_MODE") else f"wandb {mode}"
    elif environ.get("WANDB_DISABLED", "").upper() in _TRUE:
        offline = f"WANDB_DISABLED={environ['WANDB_DISABLED']}"
    return Endpoint(url, offline, _wanted(environ, "WANDB_", "wandb"))


def hub(environ: Mapping[str, str]) -> Endpoint:
    """Return where the Hugging Face hub is asked (huggingface_hub.constants)."""
    url = environ.get("HF_ENDPOINT") or "https://huggingface.co"
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    set_to = next(((name, environ[name]) for name in names if environ.get(name)), ("", ""))
    offline = "=".join(set_to) if set_to[1].upper() in _TRUE else ""
    wanted = _wanted(environ, "HF_", "transformers") or _wanted(environ, "HF_", "huggingface_hub")
    return Endpoint(url, offline, wanted)


def _wanted(environ: Mapping[str, str], prefix: str, library: str) -> str:
    named = sorted(name for name in environ if name.startswith(prefix) and environ[name])
    if named:
        return f"{named[0]} is set"
    return f"{library} is installed here" if importlib.util.find_spec(library) else ""


def read_wandb(setting: Setting) -> Endpoint:
    """Ask W&B's server, unless W&B is offline."""
    return _choose_proxied_endpoint(wandb(setting.environ, wandb_settings()), setting.environ)


def read_hub(setting: Setting) -> Endpoint:
    """Ask the hub, unless it is offline."""
    return _choose_proxied_endpoint(hub(setting.environ), setting.environ)


def wandb_settings() -> dict[str, str]:
    """Return what W&B's own files say, the folder's before the user's."""
    home = os.environ.get("WANDB_CONFIG_DIR") or os.path.expanduser("~/.config/wandb")
    found = configparser.ConfigParser(interpolation=None)
    for path in (os.path.join(home, "settings"), os.path.join("wandb", "settings")):
        try:
            found.read(path)
        except (configparser.Error, UnicodeDecodeError):
            continue
    return dict(found["default"]) if found.has_section("default") else {}


def _choose_proxied_endpoint(endpoint: Endpoint, environ: Mapping[str, str]) -> Endpoint:
    if endpoint.offline:
        return endpoint
    parts = urlsplit(endpoint.url)
    host = parts.hostname or ""
    exceptions = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    through = ""
    if not is_excepted(host, exceptions):
        names = [f"{parts.scheme}_proxy", f"{parts.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"]
        through = next((name for name in names if environ.get(name)), "")
    answer = run_in_threads(2 * ANSWER_LIMIT, {"": partial(_get, endpoint.url)})[""]
    asked = (
        answer if isinstance(answer, NetworkAnswer) else NetworkAnswer("silent", 2 * ANSWER_LIMIT)
    )
    return replace(endpoint, proxy=through, asked=asked)


def _get(url: str) -> NetworkAnswer:
    """Ask for the first page, as urllib does: through the proxies of the environment."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPSHandler, Request, build_opener

    begun = time.monotonic()
    opener = build_opener(HTTPSHandler(context=unverified_context()))
    try:
        with opener.open(Request(url, method="HEAD"), timeout=ANSWER_LIMIT) as answer:
            return NetworkAnswer("answers", time.monotonic() - begun, str(answer.status))
    except HTTPError as error:
        error.close()
        return NetworkAnswer("answers", time.monotonic() - begun, str(error.code))
    except (URLError, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        took = time.monotonic() - begun
        if isinstance(reason, TimeoutError):
            return NetworkAnswer("silent", took)
        if isinstance(reason, OSError):
            return answer_of_error(reason, took, connected=False)
        return NetworkAnswer("unreachable", took, str(reason))
    except HTTPException as error:
        return NetworkAnswer("answers", time.monotonic() - begun, str(error))
    except ValueError as error:
        return NetworkAnswer("unreachable", detail=str(error))


def wandb_answers(setting: Setting, facts: Endpoint) -> Iterator[Finding]:
    """Judge whether W&B answers."""
    yield _judged(facts, "wandb.init waits 90 s and more for it", _NO_WANDB, hangs=True)


def hub_answers(setting: Setting, facts: Endpoint) -> Iterator[Finding]:
    """Judge whether the hub answers."""
    yield _judged(facts, "from_pretrained asks it first", _NO_HUB, hangs=False)


def _judged(facts: Endpoint, does: str, offline: str, *, hangs: bool) -> Finding:
    """`hangs`: a client hangs even where the connection fails at once, for it tries again."""
    if facts.offline:
        return ok(f"not asked: {facts.offline}")
    url, asked = mask_text(facts.url), facts.asked
    through = f" through {facts.proxy}" if facts.proxy else ""
    if asked.state == "answers":
        return ok(f"{url} answers{through} in {format_seconds(asked.seconds)}")
    why = (
        ANSWER_WORDS[asked.state]
        if asked.state != "silent"
        else f"gives no answer in {ANSWER_LIMIT:g} s"
    )
    detail = f" ({asked.detail})" if asked.detail and asked.state == "unreachable" else ""
    said = f"{url} {why}{detail}{through}"
    if not facts.wanted:
        return warning(f"{said}; it matters only to a job that asks it", offline)
    serious = hangs or asked.state in ("silent", "no connection")
    said += f": {does} ({facts.wanted})"
    return problem(said, offline) if serious else warning(said, offline)


FAMILY = CheckFamily(
    "Services",
    (
        Check(
            id="wandb",
            title="W&B's server answers, or W&B is offline",
            why="wandb.init on rank 0 waits, and all other ranks wait for rank 0.",
            read=read_wandb,
            judge=wandb_answers,
        ),
        Check(
            id="hub",
            title="the Hugging Face hub answers, or is offline",
            why="from_pretrained and load_dataset ask it even for what is in the cache.",
            read=read_hub,
            judge=hub_answers,
        ),
    ),
)
