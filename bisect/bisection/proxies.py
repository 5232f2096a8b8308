"""Variables that send requests through a proxy, and how a host or all hosts are excepted.

A variable that is empty counts as not set: urllib, requests and httpx leave it out
(urllib.request.getproxies_environment), and so does Go (golang.org/x/net/http/httpproxy), in which
wandb-core is written.
"""

from __future__ import annotations

from collections.abc import Mapping

EXCEPTED, OFF = "excepted", "off"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_EXCEPTIONS = ("NO_PROXY", "no_proxy")
# What each value changes, in words.
VARIABLES = {EXCEPTED: " and ".join(_EXCEPTIONS), OFF: ", ".join(_PROXIES) + " (and in capitals)"}


def are_set(environ: Mapping[str, str]) -> bool:
    """Return whether any request goes through a proxy."""
    return any(environ.get(name) for name in _both(_PROXIES))


def variables(value: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what to set for "excepted:HOST", "off"; nothing for any other value."""
    name, _, host = value.partition(":")
    if name == OFF:
        return dict.fromkeys(_both(_PROXIES), "")
    if name != EXCEPTED:
        return {}
    hosts = [h.strip() for name in _EXCEPTIONS for h in environ.get(name, "").split(",")]
    every = ",".join(dict.fromkeys([*(h for h in hosts if h), host]))
    return dict.fromkeys(_EXCEPTIONS, every)


def _both(names: tuple[str, ...]) -> list[str]:
    return [spelling for name in names for spelling in (name, name.upper())]
