"""What the monitor of a watched script must know before any rank speaks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..place import Place, command_line
from .names import KEEP_WATCHING_VARIABLE

MANY_RANKS = 16  # above this the lines of all ranks are not printed


def settings(place: Place, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the settings, as HANGBISECT_NAME variables have them.

    Raises UsageError for a value that cannot be read.
    """
    from ..argument_types import Parser
    from ..masking import mask_command
    from ..watch_options import add_watch_options, from_environment

    parser = Parser()
    add_watch_options(parser)
    args = parser.parse_all(from_environment(parser, environ))
    return {
        "own": True,
        "keep_watching": environ.get(KEEP_WATCHING_VARIABLE) == "1",
        "pipeline": "",
        "command": mask_command(command_line(place, sys.orig_argv)),
        "folder_of_start": os.getcwd(),
        "folder_for_temporary_files": environ.get("TMPDIR") or "/tmp",
        "until": None,
        "timeout": dict(args.timeout),
        "stall": args.stall,
        "slow_limit": args.slow_limit,
        "limit": args.limit,
        "barriers": "off",
        "on_hang": args.on_hang or "report",
        "past": args.past,
        "known_hang": args.known_hang,
        "run_dir": args.run_dir,
        # The job's stdout is its own: the process around the launcher prints what --json asks for.
        "json": False,
        "plain": args.plain,
        "on_terminal": os.isatty(1),
        "sum_up": False,
        "keep": [],
        "outcome_pipe": None,
        "place": asdict(place),
    }
