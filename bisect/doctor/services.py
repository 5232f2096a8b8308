"""The services that a job asks while it starts: W&B and the Hugging Face hub."""

from __future__ import annotations

import configparser
import importlib.util
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

from ..base.masking import mask_text
from ..base.words import format_seconds
from .checks import Check, Family, Finding, Setting, ok, problem, run_in_threads, warning
from .proxies import (
    ANSWER_LIMIT,
    ANSWER_WORDS,
    ANSWERED,
    NetworkAnswer,
    answer_of_error,
    is_excepted,
    unverified_context,
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
    return _asked(wandb(setting.environ, wandb_settings()), setting.environ)


def read_hub(setting: Setting) -> Endpoint:
    """Ask the hub, unless it is offline."""
    return _asked(hub(setting.environ), setting.environ)


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


def _asked(endpoint: Endpoint, environ: Mapping[str, str]) -> Endpoint:
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


FAMILY = Family(
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
