"""What the monitor of a watched script must know before any rank speaks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..first_words import watch_settings
from ..place import Place
from .names import KEEP_WATCHING_VARIABLE


def settings(place: Place, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the settings, as HANGBISECT_NAME variables have them.

    Raises UsageError for a value that cannot be read.
    """
    from ..argument_types import Parser
    from ..watch_options import add_watch_options, from_environment

    parser = Parser()
    add_watch_options(parser)
    args = parser.parse_all(from_environment(parser, environ))
    return {
        **watch_settings(args, place, environ),
        "own": True,
        "keep_watching": environ.get(KEEP_WATCHING_VARIABLE) == "1",
        "pipeline": "",
        "until": None,
        "barriers": "off",
        "on_hang": args.on_hang or "report",
        # The job's stdout is its own: the process around the launcher prints what --json asks for.
        "json": False,
        "sum_up": False,
        "keep": [],
        "outcome_pipe": None,
    }
