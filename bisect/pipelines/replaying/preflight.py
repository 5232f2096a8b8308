"""Step 4: refuse what is known not to work, before a module is built or compiled for minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..generating.device import own_device
from ..impossible import not_installed, refuse
from .impossible import IMPOSSIBLE, Settings

if TYPE_CHECKING:
    from ...rank.context import Context
    from .inputs_step import Chosen

_LIBRARIES = ("deepspeed", "flash_attn")


def preflight(context: Context) -> Settings:
    """Return what is known. Raises UsageError for combinations that cannot work."""
    args = context.args
    chosen: Chosen = context.products["inputs"]
    facts = Settings(
        compile=args.compile,
        attention=args.attention,
        packing=args.packing,
        zero=args.zero,
        precision=args.precision,
        device=own_device(context).type,
        packed=chosen.is_packed,
        of_transformers="module" not in args.use,
        missing=not_installed(_LIBRARIES),
    )
    return refuse(context, facts, IMPOSSIBLE)
