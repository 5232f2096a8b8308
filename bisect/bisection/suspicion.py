"""What a verdict says about where to search: the hang in question, and which toggles come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..facts import HangPlace
from .isolation import Seen
from .toggle import Toggle

# Folders whose locks a job shares with the one before it, by the variable that names another.
CACHES = ("HF_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")
# Who is asked by what hangs in a component, unless a variable names another.
_HOSTS = {
    "wandb": ("WANDB_BASE_URL", "https://api.wandb.ai"),
    "hub": ("HF_ENDPOINT", "https://huggingface.co"),
}
_IN_A_CACHE = ("/.cache/", "/huggingface/", "/torch_extensions/", "/.triton/", "/triton/")


def seen_in(verdict: Mapping[str, Any], place: HangPlace) -> Seen:
    """Return what a verdict (verdict.json) says of the hang at `place`."""
    checkpoint = verdict.get("checkpoint") or {}
    cause = verdict.get("cause") or {}
    waits_for = verdict.get("waits_for") or {}
    tries = [one["toggle"] for one in verdict.get("try", ())]
    return Seen(
        place=place,
        number=checkpoint.get("number"),
        title=checkpoint.get("title", ""),
        culprit=tuple((verdict.get("ranks") or {}).get("culprit", ())),
        cause=cause.get("id"),
        cause_title=cause.get("title", ""),
        component=verdict.get("component"),
        tries=tuple(dict.fromkeys(tries)),
        waits_for=waits_for.get("kind") or "",
        detail=waits_for.get("detail") or "",
        world_size=verdict.get("world_size"),
    )


def likely(toggles: Sequence[Toggle], seen: Seen) -> tuple[str, ...]:
    """Return the names of those of `toggles` that the verdict speaks against: what it says to try,
    in its order, then the rest of the component that hangs.
    """
    names = [toggle.name for toggle in toggles]
    advised = [name for name in seen.tries if name in names]
    rest = [toggle.name for toggle in toggles if toggle.component == seen.component]
    return tuple(dict.fromkeys([*advised, *rest]))


def host_in_question(seen: Seen, environ: Mapping[str, str]) -> str | None:
    """Return the host that the component in question asks, None if it asks none that is known."""
    if seen.component not in _HOSTS:
        return None
    variable, default = _HOSTS[seen.component]
    return urlsplit(environ.get(variable) or default).hostname


def is_cache_lock(seen: Seen, environ: Mapping[str, str]) -> bool:
    """Return whether it waits for a lock that a start before it may have left in a cache."""
    if seen.waits_for != "lock" and "lock" not in (seen.cause or ""):
        return False
    named = [environ[name] for name in CACHES if environ.get(name)]
    return any(folder in seen.detail for folder in (*_IN_A_CACHE, *named))
