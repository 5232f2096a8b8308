"""Generation of text by transformers: how many tokens, and whether they are drawn."""

from __future__ import annotations

from typing import Any

from .call import Call, Said


def max_new_tokens(call: Call, value: str) -> Said:
    """Let generate() make so many tokens at most."""
    now = _said(call, "max_new_tokens")
    if value.isdigit():
        call.set("max_new_tokens", int(value))
    return Said(str(now) if isinstance(now, int) else "")


def do_sample(call: Call, value: str) -> Said:
    """Let generate() draw tokens, or take the likeliest."""
    now = _said(call, "do_sample")
    if value in ("on", "off"):
        call.set("do_sample", value == "on")
    return Said("" if now is None else "on" if now else "off")


def _said(call: Call, name: str) -> Any:
    """Return what the call says of a flag, itself or by the generation config that it is given."""
    return call.get(name, getattr(call.get("generation_config"), name, None))
