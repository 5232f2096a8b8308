"""What the monitor is told first: by every rank who it is, by who starts it what to watch by."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from . import began
from .place import Place, command_line

if TYPE_CHECKING:
    import argparse

MANY_RANKS = 16  # above this the lines of all ranks are not printed


def hello(place: Place, **more: Any) -> dict[str, Any]:
    """Return the first message of a rank, with what else it has to say of itself."""
    from .environment import relevant

    return {
        **asdict(place),
        **more,
        "pid": os.getpid(),
        "began": began.MONOTONIC,
        "wall": began.WALL,
        "error_file": os.environ.get("TORCHELASTIC_ERROR_FILE"),
        "max_restarts": int(os.environ.get("TORCHELASTIC_MAX_RESTARTS") or 0),
        "environment": relevant(os.environ),
        "python": sys.version.split()[0],
        "executable": sys.executable,
    }


def watch_settings(
    args: argparse.Namespace, place: Place, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the settings that are the same whatever the ranks run."""
    from .masking import mask_command

    return {
        "command": mask_command(command_line(place, sys.orig_argv)),
        "folder_of_start": os.getcwd(),
        "folder_for_temporary_files": environ.get("TMPDIR") or "/tmp",
        "timeout": dict(args.timeout),
        "stall": args.stall,
        "slow_limit": args.slow_limit,
        "limit": args.limit,
        "past": args.past,
        "known_hang": args.known_hang,
        "run_dir": args.run_dir,
        "plain": args.plain,
        "on_terminal": os.isatty(1),
        "place": asdict(place),
    }
