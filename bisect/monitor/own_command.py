"""A process beside the monitor that runs an internal command of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from .outer_link import OUTER_VARIABLE

START_LIMIT = 5.0  # seconds for a disk to give the program
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def start(command: str, asked: dict[str, Any], **of_popen: Any) -> subprocess.Popen[bytes]:
    """Start `hangbisect COMMAND` with what it is asked, as JSON. It may wait for the disk.

    Raises OSError if it cannot be started.
    """
    argument = json.dumps({"path": sys.path, **asked})
    # Without the mark of what the outer process ends, and waits for.
    environ = {name: value for name, value in os.environ.items() if name != OUTER_VARIABLE}
    words = [sys.executable, "-I", "-S", _OURS, command, argument]
    return subprocess.Popen(words, env=environ, **of_popen)
