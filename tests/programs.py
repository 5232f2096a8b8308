"""Programs of a few lines, each run by a Python of its own."""

from __future__ import annotations

import subprocess
import sys

DEADLINE = 60.0  # seconds


def run_program(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end, and return what it printed. Raises CalledProcessError if it fails."""
    return subprocess.run(
        [sys.executable, "-c", text, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
