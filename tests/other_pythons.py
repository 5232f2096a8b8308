"""The interpreters that are found here, of any version: jobs run in others than ours."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

ALL = ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
WATCHED = ALL[ALL.index("3.9") :]  # those in which steps are told


@cache
def interpreter(version: str) -> str | None:
    """Return an interpreter of this version, of pyenv's or on the path; None if there is none."""
    versions = Path.home() / ".pyenv" / "versions"
    made = sorted(versions.glob(f"{version}.*/bin/python{version}"))
    return str(made[-1]) if made else shutil.which(f"python{version}")
